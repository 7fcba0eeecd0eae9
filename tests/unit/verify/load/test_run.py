"""The arithmetic of a load: who is sent when, and that nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from trt_spec.errors import SpecError
from trt_spec.verify.load.address import resolve_endpoint
from trt_spec.verify.load.arrival import Bounds, ClosedLoop, Poisson, Replay
from trt_spec.verify.load.deadline import Deadline, default_total_s
from trt_spec.verify.load.run import Load
from trt_spec.verify.load.sse import read_events
from trt_spec.verify.results import to_json


def test_closed_loop_keeps_so_many_in_flight(llm_server, load, requests_of):
    llm_server.behaviour.first_s = 0.02
    run = load(resolve_endpoint(llm_server.grpc), requests_of(12), ClosedLoop(4))
    assert len(run.requests) == 12 and llm_server.behaviour.most_in_flight == 4
    assert sorted(item.id for item in run.requests) == sorted(f"r{index}" for index in range(12))
    assert not run.interrupted and run.seconds > 0


def test_prompts_repeat_up_to_the_bound(llm_server, load, requests_of):
    run = load(resolve_endpoint(llm_server.grpc), requests_of(2), ClosedLoop(1), Bounds(max_requests=5))
    assert [item.id for item in run.requests] == ["r0", "r1", "r0", "r1", "r0"]


def test_time_bounds_the_sending_and_the_last_one_finishes(llm_server, load, requests_of):
    llm_server.behaviour.first_s = 0.2
    run = load(resolve_endpoint(llm_server.grpc), requests_of(1), ClosedLoop(1), Bounds(10**6, max_s=0.5))
    assert 1 < len(run.requests) < 10 and all(item.outcome == "answered" for item in run.requests)
    assert all(item.sent_s < 0.5 for item in run.requests)


def test_open_loop_does_not_wait_for_answers(llm_server, load, requests_of):
    llm_server.behaviour.first_s = 0.5
    run = load(resolve_endpoint(llm_server.grpc), requests_of(6), Poisson(rate_per_s=500, seed=3))
    assert llm_server.behaviour.most_in_flight == 6 and len(run.requests) == 6


def test_open_loop_piles_up_no_further_than_allowed(llm_server, load, requests_of):
    llm_server.behaviour.first_s = 0.1
    arrival = Poisson(rate_per_s=10_000, seed=3, max_in_flight=2)
    run = load(resolve_endpoint(llm_server.grpc), requests_of(6), arrival)
    assert llm_server.behaviour.most_in_flight == 2
    assert max(item.delay_s for item in run.requests) > 0.1  # and the delay is told


def test_poisson_times_repeat_with_their_seed_and_have_the_rate():
    first, again, other = (list(itertools.islice(Poisson(50.0, seed).due_s(), 4000)) for seed in (1, 1, 2))
    assert first == again != other
    assert 4000 / first[-1] == pytest.approx(50, rel=0.1)
    gaps = [later - earlier for earlier, later in itertools.pairwise(first)]
    assert sum(gap < 0.02 for gap in gaps) / len(gaps) == pytest.approx(1 - 2.718281828**-1, abs=0.03)


def test_replay_sends_at_the_recorded_times(llm_server, load, requests_of):
    run = load(resolve_endpoint(llm_server.grpc), requests_of(3), Replay([100.0, 100.2, 100.5]))
    sent = [item.sent_s for item in run.requests]
    assert len(sent) == 3 and all(at >= due for at, due in zip(sent, (0.0, 0.2, 0.5), strict=True))


@pytest.mark.parametrize(
    "make", [lambda: ClosedLoop(0), lambda: Poisson(0.0), lambda: Poisson(float("inf")), lambda: Replay([]),
             lambda: Replay([1.0, 0.5])]
)  # fmt: skip
def test_arrivals_that_mean_nothing_are_refused(make):
    with pytest.raises(SpecError):
        make()


def test_an_interrupted_load_keeps_what_is_done(llm_server, requests_of):
    llm_server.behaviour.hang_on = "say 1"

    async def run():
        endpoint = resolve_endpoint(llm_server.grpc)
        await endpoint.open()
        load = Load(endpoint, requests_of(2), ClosedLoop(1), Bounds(2), Deadline(total_s=60))
        task = asyncio.create_task(load.run())
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await endpoint.close()
        return load.result

    result = asyncio.run(run())
    assert result.interrupted and [item.id for item in result.requests] == ["r0"]
    assert json.loads(to_json(result))["interrupted"] is True


def test_deadline_follows_tokens_and_measured_speed():
    assert default_total_s(96) == 60 + 96
    assert default_total_s(4096, tokens_per_s=10.0) == pytest.approx(5 * 409.6)
    assert default_total_s(96, tokens_per_s=1000.0) == 60.0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_survive_any_chunking(size):
    raw = (
        'data: {"a": 1}\n\n: comment\nevent: x\r\ndata: two\r\nid: 3\r\ndata:lines\r\n\r\ndata: 한국\n\ndata: cut off'
    ).encode()

    async def chunks():
        for start in range(0, len(raw), size):
            yield raw[start : start + size]

    async def collect():
        return [event async for event in read_events(chunks())]

    assert asyncio.run(collect()) == [b'{"a": 1}', b"two\nlines", "한국".encode(), b"cut off"]
