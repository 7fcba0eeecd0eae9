"""The fast sampler draws what the plain one draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.local_backend.row_sampling import TOP_K_CANDIDATES, RowSampler, candidates
from trt_spec.serve.sampling import Sampler, Sampling, probabilities

VOCAB = 3 * TOP_K_CANDIDATES


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from((0.0, 0.3, 1.0, 2.5)),
    top_k=st.sampled_from((0, 1, 5, 50, TOP_K_CANDIDATES + 1, 2 * VOCAB)),
    top_p=st.sampled_from((0.0, 0.1, 0.9, 0.999, 1.0)),
    spread=st.sampled_from((0.0, 0.1, 3.0, 20.0)),
    rounded=st.booleans(),
)
def test_the_draws_are_the_plain_samplers(seed, temperature, top_k, top_p, spread, rounded):
    logits = np.random.default_rng(seed).standard_normal((4, VOCAB)).astype(np.float32) * np.float32(spread)
    if rounded:  # ties
        logits = np.round(logits)
    sampling = Sampling(temperature, top_k, top_p, seed)
    plain, fast = Sampler(sampling), RowSampler(sampling)
    drawn = fast.choose(logits[:1], logits[:1].argmax(axis=1)) + fast.choose(logits[1:], logits[1:].argmax(axis=1))
    assert drawn == [plain.choose(row) for row in logits]


@pytest.mark.parametrize("sampling", [Sampling(0.7, 40, 0.95), Sampling(1.3, 0, 0.8), Sampling(2.0, 7)])
def test_the_weights_are_the_plain_samplers_distribution(sampling):
    logits = np.random.default_rng(3).standard_normal(VOCAB).astype(np.float32) * 4
    ids, weights = candidates(logits, sampling)
    spread = np.zeros(VOCAB)
    spread[ids] = weights / weights.sum()
    np.testing.assert_allclose(spread, probabilities(logits, sampling), atol=1e-12)
