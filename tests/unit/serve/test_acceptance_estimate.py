"""Rates by place: unbiased by where drafts end, and shared where a request has few rounds of its own."""

import random

import pytest

from trt_spec.serve.acceptance_estimate import PooledAcceptance, RequestAcceptance, expected_of_rates


def draw_accepted(rates, drafted, draws):
    accepted = 0
    while accepted < drafted and draws.random() < rates[accepted]:
        accepted += 1
    return accepted


def test_expected_tokens_of_equal_rates_are_the_papers():
    expected = expected_of_rates([0.8] * 5)
    assert expected == pytest.approx([(1 - 0.8 ** (n + 1)) / 0.2 for n in range(6)])


def test_the_rate_of_each_place_is_found():
    """Short and long drafts tell the same: accepted / drafted would sink with the length."""
    rates, draws, pool = [0.9, 0.7, 0.5, 0.5], random.Random(1), PooledAcceptance(4)
    found = []
    for round_number in range(4000):
        drafted = draws.choice([2, 4])
        pool.add(drafted, draw_accepted(rates, drafted, draws), rejected=True)
        if round_number > 500:
            found.append(pool.rates)
    means = [sum(seen[place] for seen in found) / len(found) for place in range(4)]
    # The estimate is an optimistic one: some standard errors above the truth.
    assert all(rate - 0.02 < mean < rate + 0.1 for rate, mean in zip(rates, means, strict=True))


def test_an_answer_that_ended_has_refused_nothing():
    ended, refused = PooledAcceptance(4), PooledAcceptance(4)
    for _ in range(20):
        ended.add(4, 2, rejected=False)
        refused.add(4, 2, rejected=True)
    assert ended.rates[1] == refused.rates[1] > 0.9
    assert refused.rates[2] < 0.3 < 0.7 < ended.rates[2]


def test_places_never_reached_are_expected_to_be_as_the_last_one_seen():
    pool = PooledAcceptance(6)
    for _ in range(100):
        pool.add(2, 2, rejected=True)
    assert pool.rates[5] > 0.9


def test_a_request_starts_with_the_pools_rates_and_goes_its_own_way():
    pool = PooledAcceptance(4)
    other = RequestAcceptance(pool)
    for _ in range(50):
        other.add(4, 4, rejected=True)
    hopeless = RequestAcceptance(pool)
    assert hopeless.expected_tokens(4)[-1] > 4.5
    for _ in range(20):
        hopeless.add(4, 0, rejected=True)
    assert hopeless.expected_tokens(4)[1] < 1.3
    assert hopeless.expected_tokens(4)[-1] < other.expected_tokens(4)[-1] - 2


def test_old_rounds_fade():
    pool = PooledAcceptance(2)
    for accepted in (2, 0):
        for _ in range(300):
            pool.add(2, accepted, rejected=True)
    assert pool.rates[0] < 0.15
