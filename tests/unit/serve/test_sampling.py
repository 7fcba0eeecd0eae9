from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.sampling import Sampler, Sampling, candidates

# Steps of 1/64: exp would make equals of logits that differ by less than its precision.
logit_rows = npst.arrays(np.int64, st.integers(2, 30), elements=st.integers(-1280, 1280)).map(
    lambda steps: (steps / 64).astype(np.float32)
)


def probabilities(logits, sampling):
    """The distribution [vocab_size] that sampling draws from when nothing was said before."""
    return Sampler(sampling).distribution(logits, ())


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.7),
        Sampling(top_k=1, top_p=0.9),
        Sampling(temperature=0.0, top_k=50, top_p=0.9),
    ],
)
def test_greedy_takes_the_largest_logit(sampling):
    assert sampling.is_greedy
    assert Sampler(sampling).choose(np.array([0.1, 3.0, 3.0, -1.0], np.float32)) == 1


@given(logits=logit_rows, temperature=st.floats(0.1, 5), top_k=st.integers(0, 40), top_p=st.floats(0, 1))
def test_probabilities_keep_the_likeliest_and_sum_to_one(logits, temperature, top_k, top_p):
    p = probabilities(logits, Sampling(temperature, top_k, top_p))
    assert p.sum() == pytest.approx(1.0)
    kept, dropped = logits[p > 0], logits[p == 0]
    assert p[logits.argmax()] == p.max()
    assert not dropped.size or dropped.max() <= kept.min() or np.exp((kept.min() - logits.max()) / temperature) < 1e-30
    if top_k:
        assert len(kept) <= top_k


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    assert np.count_nonzero(probabilities(logits, Sampling(top_p=0.79))) == 2
    assert np.count_nonzero(probabilities(logits, Sampling(top_p=0.81))) == 3


def test_draws_follow_the_distribution_and_the_seed():
    logits = np.array([0.0, 1.0, 2.0, -1.0], np.float32)
    sampling = Sampling(temperature=1.5, top_p=1.0, seed=7)
    sampler, again = Sampler(sampling), Sampler(sampling)
    drawn = [sampler.choose(logits) for _ in range(20_000)]
    assert drawn[:50] == [again.choose(logits) for _ in range(50)]
    expected = probabilities(logits, sampling) * len(drawn)
    counted = np.bincount(drawn, minlength=4)
    chi_square = ((counted - expected) ** 2 / expected).sum()
    assert chi_square < 16.27  # 3 degrees of freedom, p = 0.001; the seed is fixed
    assert [Sampler(Sampling(top_p=1.0, seed=8)).choose(np.zeros(1000, np.float32))] != drawn[:1]


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 100.0}])
def test_values_out_of_range_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**bad)


@given(logits=logit_rows, top_k=st.integers(1, 40), top_p=st.floats(0.01, 1))
def test_candidates_are_what_a_full_sort_finds(logits, top_k, top_p):
    tokens, kept = candidates(logits, top_k, top_p)
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:top_k]
    weights = np.exp(logits[order].astype(np.float64) - logits.max())
    weights /= weights.sum()
    before = np.cumsum(weights) - weights
    expected = sorted(token for token, mass in zip(order, before, strict=True) if top_p == 1.0 or mass < top_p - 1e-12)
    assert set(expected) <= set(tokens.tolist())
    assert len(tokens) <= len(expected) + 1  # a sum may round across top_p
    assert kept.sum() == pytest.approx(1.0)


def test_a_nucleus_larger_than_the_short_cut_is_whole():
    logits = np.zeros(5000, np.float32)
    assert len(candidates(logits, 0, 0.5)[0]) in (2500, 2501)  # the sum may round either way
    logits[4000] = 20.0
    assert candidates(logits, 0, 0.5)[0].tolist() == [4000]


def test_penalties_reach_the_greedy_choice():
    sampler = Sampler(Sampling(rules=LogitRules(presence_penalty=3.0)))
    logits = np.array([0.0, 2.0, 1.0], np.float32)
    assert sampler.choose(logits, [0, 0]) == 1
    assert sampler.choose(logits, [1]) == 2


def test_a_minimum_length_keeps_the_end_away_until_it_is_reached():
    sampler = Sampler(Sampling(rules=LogitRules(min_tokens=2)), output_start=3, end_id=0)
    logits = np.array([5.0, 1.0], np.float32)
    assert [sampler.choose(logits, range(length)) for length in (3, 4, 5)] == [1, 1, 0]


def test_top_p_decays_to_its_minimum_with_every_token():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    sampling = Sampling(top_p=1.0, top_p_decay=0.5, top_p_min=0.45)
    seen = [set(), set(), set()]
    for seed in range(300):
        sampler = Sampler(replace(sampling, seed=seed))
        for tokens in seen:
            tokens.add(sampler.choose(logits))
    assert seen == [{0, 1, 2, 3}, {0, 1}, {0, 1}]
    assert sampling.changes_top_p and not any(Sampling(top_p=p).changes_top_p for p in (0.0, 1e-45, 1e-9, 0.9, 1.0))
    assert Sampling(top_p=0.2, top_p_min=0.5).changes_top_p  # as in C++: the minimum may also raise it
    assert not replace(sampling, top_k=2).changes_top_p


@pytest.mark.parametrize("name", ["top_p_decay", "top_p_min"])
@pytest.mark.parametrize("value", [-0.5, 0.0, 1.5])
def test_a_decay_out_of_range_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        Sampling(top_p=0.9, **{name: value})
