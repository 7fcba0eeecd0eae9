"""Verdicts on token ids and logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.verify.judge import (
    NEAR_TIE_GAP,
    Judgement,
    find_divergence,
    judge_divergence,
    judge_run,
    measure_gap,
    near_tie_gap,
    token_at,
    trim_at_end,
)

IDS = st.lists(st.integers(0, 5), max_size=12)


@pytest.mark.parametrize(
    ("expected", "found", "position"),
    [
        ((), (), None),
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 9, 3), 1),
        ((1, 2, 3), (1, 2), 2),
        ((1, 2), (1, 2, 3), 2),
        ((), (4,), 0),
    ],
)
def test_first_divergence(expected: tuple[int, ...], found: tuple[int, ...], position: int | None) -> None:
    assert find_divergence(expected, found) == position


@given(left=IDS, right=IDS)
def test_divergence_is_the_length_of_the_common_prefix(left: list[int], right: list[int]) -> None:
    position = find_divergence(left, right)
    assert (position is None) == (left == right)
    if position is not None:
        assert left[:position] == right[:position]
        assert token_at(left, position) != token_at(right, position)


def test_ids_are_cut_before_the_first_end_token() -> None:
    assert trim_at_end((5, 6, 2, 7, 2), (2, 3)) == (5, 6)
    assert trim_at_end((5, 3), (2, 3)) == (5,)
    assert trim_at_end((5, 6), (2,)) == (5, 6)
    assert trim_at_end((5, 2), ()) == (5, 2)


def test_gap_is_measured_from_the_best_logit_of_all() -> None:
    logits = np.array([1.0, 7.0, 6.5, 3.0])
    assert measure_gap(logits, (1, 2)) == pytest.approx(0.5)
    assert measure_gap(logits, (2, 3)) == pytest.approx(4.0)  # close to each other is not enough


@pytest.mark.parametrize("logits", [[0.0, 0.0, 0.0], [1.0, float("nan"), 2.0], [1.0, 2.0], [1.0, float("-inf"), 2.0]])
def test_logits_that_say_nothing_give_no_gap(logits: list[float]) -> None:
    assert measure_gap(logits, (1, 2)) is None


@pytest.mark.parametrize(
    ("gap", "outcome"),
    [(0.0, "near_tie"), (0.001, "near_tie"), (0.0011, "different"), (4.1, "different"), (None, "different")],
)
def test_the_gap_decides(gap: float | None, outcome: str) -> None:
    judgement = judge_divergence(3, 10, 11, gap)
    assert judgement.outcome == outcome
    assert (judgement.position, judgement.expected_token, judgement.found_token, judgement.gap) == (3, 10, 11, gap)


def test_tolerance_follows_the_data_type_and_unknown_is_strict() -> None:
    assert near_tie_gap("float32") == NEAR_TIE_GAP < near_tie_gap("float16") < near_tie_gap("bfloat16") < 4.1
    assert near_tie_gap(None) == near_tie_gap("float4") == NEAR_TIE_GAP


def test_near_ties_pass_and_are_counted() -> None:
    run = judge_run([Judgement("same"), judge_divergence(1, 2, 3, 1e-4)], drafted_tokens=8)
    assert (run.verdict, run.lossless, run.passed) == ("lossless", True, True)
    assert (run.same, run.near_tie, run.different) == (1, 1, 0)


def test_one_difference_fails_the_run() -> None:
    run = judge_run([Judgement("same"), judge_divergence(1, 2, 3, 4.1)], drafted_tokens=8)
    assert (run.verdict, run.lossless, run.passed) == ("different", False, False)


def test_nothing_drafted_fails_the_run_though_the_output_is_the_same() -> None:
    run = judge_run([Judgement("same")], drafted_tokens=0)
    assert (run.verdict, run.lossless, run.passed) == ("never_drafted", True, False)
