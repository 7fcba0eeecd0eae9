"""Coroutines in threads of their own: turns under one lock, calls outside it, and calls that are never answered."""

import threading
import time

import pytest

from trt_spec.serve.request_threads import RequestThreads, blocking

LIMIT_S = 10


@pytest.fixture
def threads(monkeypatch):
    monkeypatch.setattr("trt_spec.serve.request_threads.LOOK_S", 0.01)
    started = RequestThreads()
    yield started
    started.stop()


def test_results_and_failures_of_calls_reach_the_coroutine_and_its_own_the_future(threads):
    async def adding():
        return await blocking(lambda: 1) + await blocking(lambda: 2)

    async def failing():
        try:
            await blocking(lambda: 1 / 0)
        except ZeroDivisionError:
            raise KeyError("mine") from None

    assert threads.start(adding()).result(LIMIT_S) == 3
    with pytest.raises(KeyError, match="mine"):
        threads.start(failing()).result(LIMIT_S)


def test_calls_run_together_and_what_is_between_them_never_does(threads):
    together, inside, most = threading.Barrier(8), [], []

    async def visit():
        for _ in range(20):
            await blocking(lambda: together.wait(LIMIT_S))
            inside.append(None)
            time.sleep(0.0001)
            most.append(len(inside))
            inside.pop()

    for future in [threads.start(visit()) for _ in range(8)]:
        future.result(LIMIT_S)
    assert set(most) == {1}
    assert len(most) == 160


def test_a_call_that_is_late_is_given_up_and_its_answer_changes_nothing(threads):
    gate, seen = threading.Event(), []

    async def waiting():
        try:
            await blocking(lambda: gate.wait(LIMIT_S), limit_s=0.02)
        except TimeoutError:
            seen.append("late")
        gate.set()
        seen.append(await blocking(lambda: time.sleep(0.05) or "next"))
        return "ended"

    assert threads.start(waiting()).result(LIMIT_S) == "ended"
    assert seen == ["late", "next"]


def test_a_call_within_its_limit_is_left_alone(threads):
    async def slow():
        return await blocking(lambda: time.sleep(0.1) or "there", limit_s=5)

    assert threads.start(slow()).result(LIMIT_S) == "there"


def test_who_cancels_closes_the_coroutine_where_it_waits(threads):
    waiting, gate, left = threading.Event(), threading.Event(), []

    async def staying():
        try:
            await blocking(lambda: waiting.set() or gate.wait(LIMIT_S))
            left.append("went on")
        finally:
            left.append("closed")

    future = threads.start(staying())
    assert waiting.wait(LIMIT_S)
    assert future.cancel()
    assert left == ["closed"]
    gate.set()
    time.sleep(0.05)
    assert left == ["closed"]


def test_stopping_closes_all_of_them(threads):
    gate, closed = threading.Event(), []

    async def staying():
        try:
            await blocking(lambda: gate.wait(LIMIT_S))
        finally:
            closed.append(None)

    futures = [threads.start(staying()) for _ in range(5)]
    threads.stop()
    gate.set()
    assert all(future.cancelled() for future in futures)
    assert len(closed) == 5
