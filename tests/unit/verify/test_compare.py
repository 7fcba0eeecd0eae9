"""Ratios with confidence intervals, and two systems in turn."""

from __future__ import annotations

import asyncio
import random

import pytest

from trt_spec.errors import SpecError
from trt_spec.verify.bootstrap import bootstrap_ratio
from trt_spec.verify.compare import System, compare_systems, judge_blocks
from trt_spec.verify.load.arrival import ClosedLoop
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import LoadRequest, Message, RequestFailed
from trt_spec.verify.results import LoadResult, RequestResult


def test_interval_holds_the_truth_as_often_as_it_says():
    draw = random.Random(4)
    hits = 0
    for trial in range(200):
        noise = [draw.gauss(0, 0.2) for _ in range(30)]
        a = [1.0 + shared + draw.gauss(0, 0.1) for shared in noise]
        b = [1.5 * (1.0 + shared) + draw.gauss(0, 0.1) for shared in noise]
        ratio = bootstrap_ratio(a, b, seed=trial, resamples=500)
        hits += ratio.low <= 1.5 <= ratio.high
    assert 175 <= hits <= 199


def test_equal_systems_are_not_significant_and_seeds_repeat():
    draw = random.Random(2)
    a, b = ([draw.gauss(1, 0.1) for _ in range(40)] for _ in range(2))
    ratio = bootstrap_ratio(a, b, seed=1)
    assert not ratio.significant and ratio.low < ratio.value < ratio.high
    assert ratio == bootstrap_ratio(a, b, seed=1) != bootstrap_ratio(a, b, seed=2)
    assert bootstrap_ratio(a, [3 * value for value in a], seed=1).significant


def test_one_pair_proves_nothing():
    assert bootstrap_ratio([1.0], [9.0], seed=0).significant is False
    assert bootstrap_ratio([], [], seed=0) is None and bootstrap_ratio([0.0], [1.0], seed=0) is None
    with pytest.raises(ValueError, match="no pairs"):
        bootstrap_ratio([1.0], [], seed=0)


def record(name, latency_s, tokens=10, outcome="answered"):
    messages = (latency_s / 10, latency_s) if outcome == "answered" else ()
    return RequestResult(name, "k", outcome, "" if outcome == "answered" else "broke", 0.0, 0.0, latency_s, messages,
                         (1,) * len(messages), tokens, "ids", "")  # fmt: skip


def test_ratios_pair_the_same_prompts_and_failures_stay_visible():
    a = [LoadResult(3.0, (record("x", 1.0), record("y", 2.0), record("z", 4.0)))] * 3
    b = [LoadResult(2.0, (record("z", 9.0, outcome="failed"), record("y", 1.0), record("x", 0.5)))] * 3
    found = judge_blocks("plain", "fast", a, b, seed=0)
    assert found.ratios["latency_s"].value == pytest.approx(0.5) and found.ratios["latency_s"].samples == 6
    assert found.ratios["latency_s"].significant and found.ratios["tokens_per_s_per_user"].value == pytest.approx(2.0)
    assert found.ratios["tokens_per_s"].value == pytest.approx((20 / 2) / (30 / 3))
    assert (found.b.requests, found.b.answered, found.b.failed, found.b.errors) == (9, 6, 3, {"broke": 3})
    assert (found.a.seconds, found.blocks) == (9.0, 3)


class FakeEndpoint:
    def __init__(self, name, log):
        self.name, self.log = name, log

    async def open(self): ...
    async def close(self): ...

    async def stream(self, request):
        self.log.append(self.name + request.id)
        if request.id == "bad":
            raise RequestFailed("no")
        yield Message("w", output_ids=(1,))


def test_sides_take_turns_with_the_same_prompts():
    log = []
    requests = [LoadRequest("1", "k", "t", 4), LoadRequest("bad", "k", "t", 4)]
    a, b = (System(name, FakeEndpoint(name, log), requests) for name in "ab")
    said = []
    found = asyncio.run(compare_systems(a, b, ClosedLoop(1), Deadline(total_s=5), blocks=2, progress=said.append))
    assert log == ["a1", "abad", "b1", "bbad"] * 2
    assert (found.a.requests, found.a.failed, len(said)) == (4, 2, 4)


@pytest.mark.parametrize(("blocks", "left"), [(1, 1), (2, 0), (2, 2)])
def test_loads_that_are_no_comparison(blocks, left):
    request = LoadRequest("1", "k", "t", 4)
    a, b = System("a", FakeEndpoint("a", []), [request] * left), System("b", FakeEndpoint("b", []), [request])
    if (blocks, left) == (1, 1):
        a = b
    with pytest.raises(SpecError, match="are no comparison"):
        asyncio.run(compare_systems(a, b, ClosedLoop(1), Deadline(), blocks=blocks))
