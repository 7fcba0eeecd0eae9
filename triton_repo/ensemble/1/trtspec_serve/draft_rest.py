"""Leaving a draft engine alone that keeps failing: every request that tries it waits for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

FAILURES_BEFORE_REST = 3
"""In a row. A single one may be the request's own, such as a prompt longer than the draft's context."""

FIRST_REST_S = 2.0
LONGEST_REST_S = 60.0


class DraftRest:
    """Rests of doubling length while calls fail and none succeeds between them; behind each rest, calls try again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._rest_s = 0.0
        self._ends_at = clock()

    @property
    def goes_on(self) -> bool:
        return self._clock() < self._ends_at

    def failed(self) -> None:
        self._failures += 1
        # Calls that were on their way when the rest began say nothing new.
        if self._failures >= FAILURES_BEFORE_REST and not self.goes_on:
            self._rest_s = min(LONGEST_REST_S, 2 * self._rest_s or FIRST_REST_S)
            self._ends_at = self._clock() + self._rest_s

    def answered(self) -> None:
        self._failures, self._rest_s, self._ends_at = 0, 0.0, self._clock()
