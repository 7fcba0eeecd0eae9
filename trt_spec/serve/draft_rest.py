"""Leaving a draft engine alone that keeps failing: every request that tries it waits for nothing.

A call that is never answered costs more: Triton keeps a thread for it, and has a few for each request in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

FAILURES_BEFORE_REST = 3
"""In a row. A single one may be the request's own, such as a prompt longer than the draft's context."""

FIRST_REST_S = 2.0
LONGEST_REST_S = 60.0

LONGEST_TRIAL_S = 60.0
"""Until the next one, should a call that tries never tell how it ended."""


class DraftRest:
    """Rests of doubling length while calls fail and none succeeds between them; behind each rest, one call tries.

    None does while ``most_missing`` calls that were given up have still not come back.
    """

    def __init__(self, most_missing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._most_missing = most_missing
        self._missing: set[WatchedCall] = set()
        self._failures = 0
        self._rest_s = 0.0
        self._ends_at = clock()
        self._is_trial = False

    def lets_try(self) -> bool:
        """Whether a call may be made now. While one tries the others wait for nothing: it may take long to fail."""
        now = self._clock()
        if now < self._ends_at or len(self._missing) >= self._most_missing:
            return False
        if self._rest_s:
            self._is_trial, self._ends_at = True, now + LONGEST_TRIAL_S
        return True

    def failed(self) -> None:
        self._failures += 1
        # Calls that were on their way when the rest began say nothing new.
        is_new = self._is_trial or self._clock() >= self._ends_at
        if self._failures >= FAILURES_BEFORE_REST and is_new:
            self._rest_s = min(LONGEST_REST_S, 2 * self._rest_s or FIRST_REST_S)
            self._is_trial, self._ends_at = False, self._clock() + self._rest_s

    def answered(self) -> None:
        self._failures, self._rest_s, self._ends_at, self._is_trial = 0, 0.0, self._clock(), False

    def watch(self, call: Callable[[], Any]) -> WatchedCall:
        """The same call, of which it is known whether it is missing."""
        return WatchedCall(call, self._missing)


class WatchedCall:
    """A call that is among ``missing`` from when it is given up until it comes back; both may happen at once."""

    def __init__(self, call: Callable[[], Any], missing: set[WatchedCall]) -> None:
        self._call = call
        self._missing = missing
        self._is_back = False

    def __call__(self) -> Any:
        try:
            return self._call()
        finally:
            self._is_back = True
            self._missing.discard(self)

    def give_up(self) -> None:
        self._missing.add(self)
        if self._is_back:
            self._missing.discard(self)
