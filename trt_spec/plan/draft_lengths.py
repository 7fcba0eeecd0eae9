"""The draft length to start from by requests in flight, which the orchestrator corrects by what it measures."""

from __future__ import annotations

from collections.abc import Callable

from trt_spec.spec.model import Spec

LONGEST_TABLE = 64
"""Requests in flight that get a length of their own; beyond them the last one stands until times are measured."""
CPU_LOSES_AT = 8
"""Requests in flight at which drafting loses on a CPU, by steps measured on 2 cores for SmolLM2-135M with its int8 copy
as draft (docs/explanation/drafting.md). Verifying several tokens of so many sequences computes more than memory
hides."""


def plan_draft_lengths(best: Callable[[int], int], max_batch_size: int) -> tuple[int, ...]:
    """``best(n)`` for n = 1, 2, ... requests in flight, cut where nothing changes any more."""
    return _cut([best(running) for running in range(1, min(max_batch_size, LONGEST_TABLE) + 1)])


def default_draft_lengths(spec: Spec) -> tuple[int, ...]:
    """Lengths without figures of the hardware or the acceptance, entry i (from 1) for i requests in flight.

    onnx: from max_draft_len at one request evenly down to 0 at ``CPU_LOSES_AT``. engine: max_draft_len throughout.
    Empty for a spec whose orchestrator drafts nothing.
    """
    longest = spec.external_draft_len
    if longest == 0:
        return ()
    if spec.backend == "engine":
        return (longest,)

    def falling(running: int) -> int:
        share = max(0, CPU_LOSES_AT - running) / (CPU_LOSES_AT - 1)
        return max(round(longest * share), 1 if running < CPU_LOSES_AT else 0)

    return plan_draft_lengths(falling, spec.limits.max_batch_size)


def _cut(lengths: list[int]) -> tuple[int, ...]:
    while len(lengths) > 1 and lengths[-1] == lengths[-2]:
        lengths.pop()
    return tuple(lengths)
