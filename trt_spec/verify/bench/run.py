"""Runs the settings of one system in turn, block by block, so that drift of the machine meets all of them alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trt_spec.verify.bench.settings import Setting
from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import Endpoint, LoadRequest
from trt_spec.verify.load.run import run_load
from trt_spec.verify.results import LoadResult
from trt_spec.verify.summary import summarise_load

MakeRequests = Callable[[Setting], Sequence[LoadRequest]]

FEWEST_SETTINGS = 2
"""One without drafts and one with: anything less says nothing."""


@dataclass
class Recording:
    """Whole loads by setting, in the order they ran. What was cut short is not in it."""

    loads: dict[Setting, list[LoadResult]] = field(default_factory=dict)

    def add(self, setting: Setting, load: LoadResult) -> None:
        self.loads.setdefault(setting, []).append(load)


@dataclass(frozen=True)
class Budget:
    """How often everything is measured: ``blocks`` times, or as often as fits before ``ends_at`` of the clock.

    A block ends there too, and is then not whole. The first two settings of the first one are measured in any case.
    """

    blocks: int
    ends_at: float = math.inf

    def allows_block(self, done: int, begun: float, now: float) -> bool:
        """Whether another block may begin after ``done`` of them."""
        if done >= self.blocks:
            return False
        return done == 0 or now + (now - begun) / done <= self.ends_at

    def allows_setting(self, measured: int, now: float) -> bool:
        """Whether another setting may begin after ``measured`` of them, in all blocks."""
        return measured < FEWEST_SETTINGS or now <= self.ends_at


async def run_blocks(
    endpoint: Endpoint,
    settings: Sequence[Setting],
    make_requests: MakeRequests,
    budget: Budget,
    deadline: Deadline,
    recording: Recording,
    *,
    begin_block: Callable[[], None] = lambda: None,
    progress: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Fills ``recording``, which is valid at any moment. Every second block goes backwards; ``begin_block`` is called
    before each. Raises as ``run_load``."""
    begun = clock()
    done = 0
    while budget.allows_block(done, begun, clock()):
        begin_block()
        order = list(settings) if done % 2 == 0 else list(reversed(settings))
        for place, setting in enumerate(order):
            if not budget.allows_setting(done * len(order) + place, clock()):
                progress(f"out of time: {len(order) - place} settings of this block are left out")
                return
            requests = make_requests(setting)
            load = await run_load(endpoint, requests, ClosedLoop(setting.concurrency), Bounds(len(requests)), deadline)
            recording.add(setting, load)
            progress(f"block {done + 1}: {setting.label}: {_describe(load)}")
        done += 1


def _describe(load: LoadResult) -> str:
    summary = summarise_load(load)
    speed = "-" if summary.tokens_per_s is None else f"{summary.tokens_per_s:.1f}"
    lost = summary.requests - summary.answered
    alpha = summary.acceptance.alpha if summary.acceptance else None
    return (
        f"{speed} tokens/s"
        + (f", alpha {alpha:.2f}" if alpha is not None else "")
        + (f", {lost} of {summary.requests} NOT answered" if lost else "")
    )
