"""Whether drafting ahead pays: the draft model goes on while the target verifies (PEARL, arXiv 2408.11850).

Where both engines share a processor the target then runs slower, and nothing is won; where they do not, the next draft
is there when it is needed. Neither can be told from step times, so rounds are measured with and without.
"""

from __future__ import annotations

TRIAL_ROUNDS = 12
"""Rounds with, after as many without."""

MIN_GAIN = 1.05
HOLD_S = 60.0
MAX_HOLD_S = 16 * HOLD_S
"""A verdict stands for so many seconds of work; a refusal for twice as long each time."""


class AheadTrial:
    """The trial at one load; ``ratio`` is a round's seconds with it over those without, 1.0 unless it is in use."""

    def __init__(self) -> None:
        self.ratio = 1.0
        self._sums = {False: 0.0, True: 0.0}
        self._rounds = {False: 0, True: 0}
        self._verdict: bool | None = None
        self._until_s = 0.0
        self._hold_s = HOLD_S

    def wants(self, busy_s: float) -> bool:
        """Whether the next round should draft ahead."""
        if self._verdict is not None and busy_s >= self._until_s:
            self._verdict, self.ratio = None, 1.0
            self._sums, self._rounds = {False: 0.0, True: 0.0}, {False: 0, True: 0}
        return self._rounds[False] >= TRIAL_ROUNDS if self._verdict is None else self._verdict

    def observe(self, ahead: bool, relative: float, busy_s: float) -> None:
        """A round that took ``relative`` times what its length is known to take."""
        if self._verdict is not None:
            return
        self._sums[ahead] += relative
        self._rounds[ahead] += 1
        if self._rounds[True] < TRIAL_ROUNDS:
            return
        without, with_it = (self._sums[side] / self._rounds[side] for side in (False, True))
        self._verdict = without > MIN_GAIN * with_it
        self.ratio = with_it / without if self._verdict else 1.0
        self._hold_s = HOLD_S if self._verdict else min(2 * self._hold_s, MAX_HOLD_S)
        self._until_s = busy_s + self._hold_s
