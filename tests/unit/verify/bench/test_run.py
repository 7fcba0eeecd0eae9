"""Blocks of settings on an endpoint, within a budget."""

import asyncio
import contextlib
import itertools
import time

import pytest

from trt_spec.verify.bench.run import Budget, Recording, run_blocks
from trt_spec.verify.bench.settings import Setting
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import LoadRequest, Message, RequestFailed

SETTINGS = [Setting(num_draft_tokens=0), Setting(num_draft_tokens=2), Setting(num_draft_tokens=4, concurrency=2)]


class ScriptedEndpoint:
    """Answers at once, and does as told with the request of that number."""

    name = "scripted"

    def __init__(self, interrupt_at=None, fail_at=()):
        self.sent = []
        self._interrupt_at, self._fail_at = interrupt_at, fail_at

    async def open(self): ...

    async def close(self): ...

    async def stream(self, request):
        self.sent.append(request.num_draft_tokens)
        if len(self.sent) == self._interrupt_at:
            raise KeyboardInterrupt
        if len(self.sent) in self._fail_at:
            raise RequestFailed("no room")
        yield Message(text="word", output_ids=(1,))


def requests_of(setting):
    return [LoadRequest(f"p{i}", "chat", "x", 1, num_draft_tokens=setting.num_draft_tokens) for i in range(2)]


def run(endpoint, budget, clock=time.monotonic, progress=lambda _: None):
    recording = Recording()
    job = run_blocks(
        endpoint, SETTINGS, requests_of, budget, Deadline(total_s=5), recording, clock=clock, progress=progress
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(job)
    return recording


def test_every_second_block_goes_backwards():
    endpoint = ScriptedEndpoint()
    recording = run(endpoint, Budget(2))
    assert endpoint.sent == [0, 0, 2, 2, 4, 4, 4, 4, 2, 2, 0, 0]
    assert [len(loads) for loads in recording.loads.values()] == [2, 2, 2]


@pytest.mark.parametrize(("ends_at", "blocks"), [(309.0, 2), (199.0, 1)])
def test_no_block_begins_that_would_not_fit(ends_at, blocks):
    # The first block begins at 0, its settings at 10, 20 and 30; it ends at 100, the second one at 210.
    clock = iter([0.0, 0.0, 10.0, 20.0, 30.0, 100.0, 110.0, 120.0, 130.0, 210.0]).__next__
    recording = run(ScriptedEndpoint(), Budget(9, ends_at), clock)
    assert {len(loads) for loads in recording.loads.values()} == {blocks}


def test_the_first_block_ends_with_the_budget_but_keeps_two_settings():
    said = []
    recording = run(ScriptedEndpoint(), Budget(9, ends_at=1.0), itertools.count(0.0).__next__, said.append)
    assert list(recording.loads) == SETTINGS[:2]
    assert said[-1] == "out of time: 1 settings of this block are left out"


def test_a_later_block_that_takes_longer_ends_with_the_budget_too():
    clock = iter([0.0, 0.0, 1.0, 2.0, 3.0, 10.0, 20.0, 30.0]).__next__
    recording = run(ScriptedEndpoint(), Budget(9, ends_at=25.0), clock)
    assert [len(recording.loads[setting]) for setting in SETTINGS] == [1, 1, 2]


def test_an_interrupt_keeps_whole_loads_alone():
    recording = run(ScriptedEndpoint(interrupt_at=4), Budget(3))
    assert list(recording.loads) == SETTINGS[:1]


def test_failed_requests_are_recorded():
    recording = run(ScriptedEndpoint(fail_at=(1,)), Budget(1))
    first = recording.loads[SETTINGS[0]][0]
    assert [item.outcome for item in first.requests] == ["failed", "answered"]
    assert first.requests[0].error == "no room"


@pytest.mark.parametrize(
    ("done", "now", "allowed"), [(0, 10.0, True), (1, 60.0, True), (1, 61.0, False), (3, 1.0, False)]
)
def test_another_block_has_to_fit(done, now, allowed):
    assert Budget(3, 110.0).allows_block(done, 10.0, now) is allowed


def test_something_may_be_done_before_each_block():
    endpoint, seen = ScriptedEndpoint(), []
    job = run_blocks(
        endpoint,
        SETTINGS,
        requests_of,
        Budget(2),
        Deadline(total_s=5),
        Recording(),
        begin_block=lambda: seen.append(len(endpoint.sent)),
    )
    asyncio.run(job)
    assert seen == [0, 6]
