"""Which idle sequences give way in the KV cache's blocks, and which row moves where. Pure.

Attention costs a row of the block for every position from the first running row to the last, at the capacity of the
longest. So an idle sequence that is longer than all running ones, or stands between them, slows every step. Between two
rounds of speculation it is idle too, for a few steps: only after ``PARK_AFTER_STEPS`` it is parked, outside the block
(two copies, should it come back), and the last running row moves into the hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PARK_AFTER_STEPS = 32


@dataclass(frozen=True)
class Spot:
    """A position of the block: the row there, its tokens in the block (0: empty or parked), steps since it was fed."""

    row: int
    tokens: int
    is_running: bool
    idle_steps: int


@dataclass(frozen=True)
class Layout:
    """Rows to park, and a row to move to an empty position."""

    park: tuple[int, ...] = ()
    move: tuple[int, int] | None = None


def plan_layout(spots: Sequence[Spot], capacity: int, fits: int) -> Layout:
    """What to change before the next pass; ``spots`` by position. ``fits`` is the capacity that running rows need."""
    running = [position for position, spot in enumerate(spots) if spot.is_running]
    if not running:
        return Layout()
    inside = range(running[0], running[-1] + 1)
    park = {
        position
        for position, spot in enumerate(spots)
        if not spot.is_running
        and spot.idle_steps >= PARK_AFTER_STEPS
        and spot.tokens
        and (position in inside or (spot.tokens > fits and fits <= capacity // 2))
    }
    holes = [
        position
        for position in inside
        if not spots[position].is_running and (position in park or not spots[position].tokens)
    ]
    move = (spots[running[-1]].row, holes[0]) if holes else None
    return Layout(tuple(spots[position].row for position in sorted(park)), move)
