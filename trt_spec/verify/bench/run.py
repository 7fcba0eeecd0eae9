"""Runs the settings of one system in turn, block by block, so that drift of the machine meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trt_spec.verify.bench.settings import Setting
from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import Endpoint, LoadRequest
from trt_spec.verify.load.run import CountTokens, run_load
from trt_spec.verify.results import LoadResult
from trt_spec.verify.summary import summarise_load

MakeRequests = Callable[[Setting], Sequence[LoadRequest]]


@dataclass
class Recording:
    """Whole loads by setting, in the order they ran. What was cut short is not in it."""

    loads: dict[Setting, list[LoadResult]] = field(default_factory=dict)
    interrupted: bool = False

    def add(self, setting: Setting, load: LoadResult) -> None:
        self.loads.setdefault(setting, []).append(load)


@dataclass(frozen=True)
class Budget:
    """How often everything is measured: ``blocks`` times, or as often as ``seconds`` allow, once at least."""

    blocks: int
    seconds: float | None = None

    def allows(self, done: int, elapsed_s: float) -> bool:
        """Whether another block may begin after ``done`` of them took ``elapsed_s``."""
        if done >= self.blocks:
            return False
        return done == 0 or self.seconds is None or elapsed_s * (done + 1) / done <= self.seconds


async def run_blocks(
    endpoint: Endpoint,
    settings: Sequence[Setting],
    make_requests: MakeRequests,
    budget: Budget,
    deadline: Deadline,
    recording: Recording,
    *,
    count_tokens: CountTokens | None = None,
    progress: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Fills ``recording``, which is valid at any moment. Every second block goes backwards. Raises as ``run_load``."""
    begun = clock()
    done = 0
    while budget.allows(done, clock() - begun):
        order = list(settings) if done % 2 == 0 else list(reversed(settings))
        for setting in order:
            requests = make_requests(setting)
            load = await run_load(
                endpoint, requests, ClosedLoop(setting.concurrency), Bounds(len(requests)), deadline, count_tokens
            )
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
