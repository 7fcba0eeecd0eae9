"""Penalties, bias and bans against the formulas of TensorRT-LLM's penalty kernel, written out token by token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.logit_rules import MASKED, LogitRules, apply_rules

VOCABULARY = 12
ids_lists = st.lists(st.integers(0, VOCABULARY - 1), max_size=20)


def reference(logits, rules, temperature, ids, output_start, end_id):
    """One token at a time, in plain floats."""
    changed = []
    for token in range(VOCABULARY):
        value = float(logits[token])
        if rules.embedding_bias is not None:
            value += float(rules.embedding_bias[token])
        value /= temperature
        count = list(ids).count(token)
        if count:
            value = value * rules.repetition_penalty if value < 0 else value / rules.repetition_penalty
            value -= rules.presence_penalty + rules.frequency_penalty * count
        if token == end_id and len(ids) - output_start < rules.min_tokens:
            value = float(MASKED)
        for word in rules.bad_words:
            if (
                word[-1] == token
                and list(ids)[len(ids) - len(word) + 1 :] == list(word[:-1])
                and len(ids) >= len(word) - 1
            ):
                value = float(MASKED)
        changed.append(value)
    return changed


@given(
    seed=st.integers(0, 1000),
    ids=ids_lists,
    penalties=st.tuples(st.floats(0.5, 2.0), st.floats(-2, 2), st.floats(-2, 2)),
    min_tokens=st.integers(0, 6),
    bad_words=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
    temperature=st.sampled_from([0.25, 1.0, 1.5]),
    has_bias=st.booleans(),
    start=st.integers(0, 20),
)
def test_rules_follow_the_formulas(seed, ids, penalties, min_tokens, bad_words, temperature, has_bias, start):
    random = np.random.default_rng(seed)
    logits = random.normal(0, 4, VOCABULARY).astype(np.float32)
    bias = random.normal(0, 2, VOCABULARY).astype(np.float32) if has_bias else None
    rules = LogitRules(*penalties, min_tokens=min_tokens, bad_words=bad_words, embedding_bias=bias)
    start = min(start, len(ids))
    before = logits.copy()
    changed = apply_rules(logits, rules, temperature, ids, start, end_id=5)
    np.testing.assert_allclose(changed, reference(logits, rules, temperature, ids, start, 5), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(logits, before)


def test_neutral_rules_hand_the_logits_on():
    logits = np.arange(4, dtype=np.float32)
    assert apply_rules(logits, LogitRules(), 1.0, [1, 2], 0, 3) is logits


def test_a_temperature_alone_needs_no_ids_and_keeps_no_end_away():
    logits = np.arange(4, dtype=np.float32)
    assert apply_rules(logits, LogitRules(), 0.5, (), 7, 3).tolist() == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize("rules", [LogitRules(), LogitRules(embedding_bias=np.full(4, 3e38, np.float32))])
def test_no_temperature_makes_logits_infinite(rules):
    changed = apply_rules(np.array([-9, 0, 9, 8], np.float32), rules, 1e-40, [], 0, None)
    assert np.isfinite(changed).all() and changed.argmax() == (2 if rules.is_neutral else 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("frequency_penalty", [3e38, -3e38])
@pytest.mark.parametrize("repetition_penalty", [1e-45, 3e38])
def test_no_penalties_together_make_a_logit_that_is_no_number(repetition_penalty, frequency_penalty):
    rules = LogitRules(repetition_penalty, -frequency_penalty, frequency_penalty)
    changed = apply_rules(np.array([-9, 0, 9, 8], np.float32), rules, 1e-40, [0, 0, 1, 1, 2, 2, 2], 0, None)
    assert np.isfinite(changed).all()


def test_a_row_where_everything_is_banned_still_has_a_choice():
    rules = LogitRules(bad_words=tuple((token,) for token in range(4)))
    changed = apply_rules(np.zeros(4, np.float32), rules, 1.0, [], 0, None)
    assert np.isfinite(changed).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("nan")},
        {"presence_penalty": float("inf")},
        {"frequency_penalty": float("nan")},
        {"min_tokens": -1},
        {"bad_words": ((),)},
    ],
)
def test_values_out_of_range_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad)).replace("_words", " word")):
        LogitRules(**bad)
