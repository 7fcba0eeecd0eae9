"""Acceptance figures: worked examples, bounds, and the estimator against a process of known alpha."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.errors import VerifyFailed
from trt_spec.verify.acceptance import Round, measure_acceptance

ROUNDS = st.lists(
    st.integers(0, 12).flatmap(lambda drafted: st.integers(0, drafted).map(lambda accepted: Round(drafted, accepted)))
)


def simulate(alpha: float, drafted: int, rounds: int, seed: int) -> list[Round]:
    """Rounds whose tokens are each accepted with probability alpha until the first rejection."""
    source = random.Random(seed)
    seen = []
    for _ in range(rounds):
        accepted = 0
        while accepted < drafted and source.random() < alpha:
            accepted += 1
        seen.append(Round(drafted, accepted))
    return seen


def test_worked_example() -> None:
    figures = measure_acceptance([Round(4, 4), Round(4, 1), Round(2, 2), Round(0, 0), Round(4, 0)])
    assert (figures.rounds, figures.drafted, figures.accepted) == (5, 14, 7)
    assert figures.mean_acceptance_length == pytest.approx(1 + 7 / 5)
    assert figures.draft_acceptance_rate == pytest.approx(0.5)
    assert figures.alpha == pytest.approx(7 / 9)  # two of the rounds ended by a rejection
    assert figures.per_position_acceptance_rate == pytest.approx((3 / 4, 2 / 4, 1 / 3, 1 / 3))
    # Token 2 was reached by three rounds (4,4), (4,1), (2,2) and kept by two; token 3 by one round only.
    assert figures.per_position_conditional_rate == pytest.approx((3 / 4, 2 / 3, 1.0, 1.0))
    assert figures.acceptance_length_histogram == {1: 2, 2: 1, 3: 1, 5: 1}


def test_nothing_to_divide_by() -> None:
    empty = measure_acceptance([])
    assert empty.mean_acceptance_length is None and empty.alpha is None and empty.draft_acceptance_rate is None
    plain = measure_acceptance([Round(0, 0)])
    assert plain.mean_acceptance_length == 1 and plain.alpha is None and plain.per_position_acceptance_rate == ()


@pytest.mark.parametrize("counts", [Round(2, 3), Round(2, -1)])
def test_impossible_counts_are_refused(counts: Round) -> None:
    with pytest.raises(VerifyFailed, match="impossible"):
        measure_acceptance([counts])


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("drafted", [1, 4, 8])
def test_alpha_is_recovered_whatever_the_draft_length(alpha: float, drafted: int) -> None:
    figures = measure_acceptance(simulate(alpha, drafted, 20_000, seed=7))
    assert figures.alpha == pytest.approx(alpha, abs=0.015)
    for rate in figures.per_position_conditional_rate[:1]:
        assert rate == pytest.approx(alpha, abs=0.015)
    expected_length = sum(alpha**i for i in range(drafted + 1))  # (1 - a^(g+1)) / (1 - a)
    assert figures.mean_acceptance_length == pytest.approx(expected_length, rel=0.02)


@settings(max_examples=30, deadline=None)
@given(alpha=st.floats(0.05, 0.95), drafted=st.integers(2, 8), seed=st.integers(0, 2**16))
def test_acceptance_rate_is_no_estimate_of_alpha(alpha: float, drafted: int, seed: int) -> None:
    figures = measure_acceptance(simulate(alpha, drafted, 4_000, seed))
    assert figures.alpha == pytest.approx(alpha, abs=0.06)
    assert figures.draft_acceptance_rate is not None and figures.alpha is not None
    assert figures.draft_acceptance_rate < figures.alpha


@given(rounds=ROUNDS)
def test_bounds_and_sums(rounds: list[Round]) -> None:
    figures = measure_acceptance(rounds)
    for value in (figures.draft_acceptance_rate, figures.alpha, *figures.per_position_conditional_rate):
        assert value is None or 0 <= value <= 1
    assert sum(figures.acceptance_length_histogram.values()) == figures.rounds
    assert sum((n - 1) * count for n, count in figures.acceptance_length_histogram.items()) == figures.accepted
    offered = [sum(item.drafted >= i + 1 for item in rounds) for i in range(len(figures.per_position_acceptance_rate))]
    kept = sum(rate * n for rate, n in zip(figures.per_position_acceptance_rate, offered, strict=True))
    assert kept == pytest.approx(figures.accepted)
