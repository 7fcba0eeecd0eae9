"""Pure parts: names of differences, tests of samples, canaries."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from trt_spec.verify.lossless.canary import Leak, find_leaks, make_canaries
from trt_spec.verify.lossless.distribution import RARE, compare_counts, judge_samples
from trt_spec.verify.lossless.faults import name_divergence

EXPECTED = (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("found", "position", "name"),
    [
        ((1, 2, 4, 5, 6), 2, "dropped_token"),
        ((1, 2, 2, 3, 4, 5), 2, "repeated_token"),
        ((1, 2, 9, 4, 5, 6), 2, "wrong_token"),
        ((1, 2, 9, 3, 4, 5), 2, "wrong_token"),  # one too many, and no repetition
        ((1, 2, 3), 3, "cut_short"),
        ((*EXPECTED, 7), 6, "too_long"),
        ((1, 2, 3, 4, 5, 9), 5, "wrong_token"),
    ],
)
def test_differences_have_names(found, position, name):
    assert name_divergence(EXPECTED, found, position) == name


def draw(seed, count, weights, tied=False):
    source = random.Random(seed)
    sequences = []
    for _ in range(count):
        numbers = [source.random()] * 3 if tied else [source.random() for _ in range(3)]
        sequences.append(tuple(int(number * weights) for number in numbers))
    return sequences


def test_false_alarms_are_rare():
    smallest = [
        min(judge_samples("p", draw(2 * n, 160, 4), draw(2 * n + 1, 160, 4), seed=n).p_values) for n in range(100)
    ]
    assert min(smallest) > RARE
    assert 5 < sum(value < 0.1 for value in smallest) < 50  # p-values spread: the test can see something


def test_what_is_wrong_with_a_sample_is_named():
    plain = draw(1, 160, 4)
    assert judge_samples("p", plain, draw(2, 160, 4, tied=True), seed=0).fault == "seed_reused"
    assert judge_samples("p", plain, draw(2, 160, 2), seed=0).fault == "distribution_differs"
    assert judge_samples("p", plain, [plain[0]] * 160, seed=0).fault == "seed_ignored"
    assert judge_samples("p", [(1, 1, 1)] * 160, [(1, 1, 1)] * 160, seed=0).fault is None


def test_p_values_are_those_of_the_exact_test():
    # Two outcomes, 10 and 10 draws, 10:0 against 0:10: one of C(20, 10) tables each way is as extreme.
    assert compare_counts(Counter({(1,): 10}), Counter({(2,): 10}), seed=0) == pytest.approx(2 / 184756, abs=3e-4)
    # 8:4 against 4:8: twice the upper tail of the hypergeometric distribution, 0.2203.
    p_value = compare_counts(Counter({(1,): 8, (2,): 4}), Counter({(1,): 4, (2,): 8}), seed=0)
    assert p_value == pytest.approx(0.2203, abs=0.07)


def test_canaries_are_of_their_own_and_leaks_are_found_in_any_case():
    canaries = make_canaries(12, seed=3)
    assert canaries == make_canaries(12, seed=3) != make_canaries(12, seed=4)
    assert len({item.word for item in canaries}) == 12
    answers = [item.word for item in canaries]
    assert find_leaks(canaries, answers) == ()
    answers[4] = f"it is {canaries[7].word.lower()}!"
    assert find_leaks(canaries, answers) == (Leak("canary-5", "canary-8"),)
