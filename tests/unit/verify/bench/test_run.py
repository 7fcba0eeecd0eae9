"""Blocks of settings on an endpoint, within a budget."""

import asyncio
import contextlib

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


def run(endpoint, budget, clock=None):
    recording = Recording()
    more = {"clock": clock} if clock else {}
    job = run_blocks(endpoint, SETTINGS, requests_of, budget, Deadline(total_s=5), recording, **more)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(job)
    return recording


def test_every_second_block_goes_backwards():
    endpoint = ScriptedEndpoint()
    recording = run(endpoint, Budget(2))
    assert endpoint.sent == [0, 0, 2, 2, 4, 4, 4, 4, 2, 2, 0, 0]
    assert [len(loads) for loads in recording.loads.values()] == [2, 2, 2]


def test_a_budget_ends_the_blocks_but_never_the_first():
    ticks = iter([0.0, 0.0, 100.0, 200.0, 300.0])
    recording = run(ScriptedEndpoint(), Budget(9, seconds=210.0), clock=lambda: next(ticks))
    assert {len(loads) for loads in recording.loads.values()} == {2}
    ticks = iter([0.0, 0.0, 100.0, 200.0])
    recording = run(ScriptedEndpoint(), Budget(9, seconds=1.0), clock=lambda: next(ticks))
    assert {len(loads) for loads in recording.loads.values()} == {1}


def test_an_interrupt_keeps_whole_loads_alone():
    recording = run(ScriptedEndpoint(interrupt_at=4), Budget(3))
    assert list(recording.loads) == SETTINGS[:1]


def test_failed_requests_are_recorded():
    recording = run(ScriptedEndpoint(fail_at=(1,)), Budget(1))
    first = recording.loads[SETTINGS[0]][0]
    assert [item.outcome for item in first.requests] == ["failed", "answered"]
    assert first.requests[0].error == "no room"


@pytest.mark.parametrize(
    ("done", "elapsed", "allowed"), [(0, 0.0, True), (1, 40.0, True), (1, 60.0, False), (3, 1.0, False)]
)
def test_another_block_has_to_fit(done, elapsed, allowed):
    assert Budget(3, 100.0).allows(done, elapsed) is allowed
