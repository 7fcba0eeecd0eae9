"""Log-probabilities by the definition, and where TensorRT-LLM's differ from it."""

import numpy as np
import pytest

from trt_spec.serve.log_probs import token_log_probs
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.sampling import Sampler, Sampling

LOGITS = np.array([1.0, 3.0, -2.0, 2.5], np.float32)


def softmax(values):
    weights = np.exp(values - values.max())
    return weights / weights.sum()


def test_over_the_whole_vocabulary():
    for token, p in enumerate(softmax(LOGITS)):
        assert token_log_probs(LOGITS, token, 0)[0] == pytest.approx(np.log(p), abs=1e-6)
    assert token_log_probs(LOGITS * 1000, 1, 0)[0] == pytest.approx(0.0)


def test_the_mass_of_the_candidates():
    p = np.sort(softmax(LOGITS))[::-1]
    for k in (1, 2, 3):
        assert token_log_probs(LOGITS, 1, k)[1] == pytest.approx(np.log(p[:k].sum()), abs=1e-6)
    assert [token_log_probs(LOGITS, 1, k)[1] for k in (0, 4, 99)] == [0.0] * 3


def test_they_are_of_the_logits_that_sampling_sees():
    rules = LogitRules(embedding_bias=np.array([0, 0, 1, 0], np.float32), repetition_penalty=2.0, bad_words=((3,),))
    changed = np.array([1.0, 3.0, -1.0, -np.inf]) / 0.5
    changed[1] /= 2.0
    value, mass = Sampler(Sampling(temperature=0.5, top_k=2, rules=rules)).log_probs(LOGITS, [1], 0)
    assert value == pytest.approx(np.log(softmax(changed)[0]), abs=1e-6)
    assert mass == pytest.approx(np.log(softmax(changed)[[0, 1]].sum()), abs=1e-6)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=1), Sampling(temperature=0.0)])
def test_a_greedy_choice_has_the_whole_mass_of_its_candidates(sampling):
    value, mass = Sampler(sampling).log_probs(LOGITS, [], 1)
    assert value == mass < 0.0


def test_a_greedy_choice_is_scaled_by_the_temperature_all_the_same():
    value, _ = Sampler(Sampling(temperature=2.0, top_k=1)).log_probs(LOGITS, [], 1)
    assert value == pytest.approx(np.log(softmax(LOGITS / 2)[1]), abs=1e-6)


def test_top_p_alone_knows_no_candidates():
    assert Sampler(Sampling(top_p=0.5)).log_probs(LOGITS, [], 1)[1] == 0.0
