"""Whether drafting ahead pays: the draft model goes on while the target verifies (PEARL, arXiv 2408.11850).

Where both engines share a processor the target then runs slower, and nothing is won; where they do not, the next draft
is there when it is needed. Neither can be told from step times, so rounds are measured with and without.
"""

from __future__ import annotations

from statistics import median

BLOCK_ROUNDS = 4
TRIAL_ROUNDS = 3 * BLOCK_ROUNDS
"""Rounds with, and as many without, in turns of a block: times drift, and what a call ahead saves shows in the round
behind it."""

MIN_GAIN = 1.05
HOLD_S = 60.0
MAX_HOLD_S = 16 * HOLD_S
"""A verdict stands for so many seconds of work; a refusal for twice as long each time."""


class AheadTrial:
    """The trial at one load; ``ratio`` is a round's seconds with it over those without, 1.0 unless it is in use."""

    def __init__(self) -> None:
        self.ratio = 1.0
        self._seen: dict[bool, list[float]] = {False: [], True: []}
        self._verdict: bool | None = None
        self._until_s = 0.0
        self._hold_s = HOLD_S

    def wants(self, busy_s: float) -> bool:
        """Whether the next round should draft ahead."""
        if self._verdict is not None and busy_s >= self._until_s:
            self._verdict, self.ratio, self._seen = None, 1.0, {False: [], True: []}
        if self._verdict is not None:
            return self._verdict
        return sum(map(len, self._seen.values())) // BLOCK_ROUNDS % 2 == 1

    def observe(self, ahead: bool, relative: float, busy_s: float) -> None:
        """A round that took ``relative`` times what its length is known to take."""
        if self._verdict is not None:
            return
        self._seen[ahead].append(relative)
        if min(map(len, self._seen.values())) < TRIAL_ROUNDS:
            return
        without, with_it = (median(self._seen[side]) for side in (False, True))
        self._verdict = without > MIN_GAIN * with_it
        self.ratio = with_it / without if self._verdict else 1.0
        self._hold_s = HOLD_S if self._verdict else min(2 * self._hold_s, MAX_HOLD_S)
        self._until_s = busy_s + self._hold_s
