"""How much may be spent on finding out whether drafting pays again, while it does not."""

from __future__ import annotations

MAX_FRACTION = 0.02
"""Of the time that requests are in flight, what probes may cost."""

MIN_FRACTION = 0.004
BACK_OFF = 0.7
MAX_SAVED_PROBES = 2.0
LOST_ROUNDS_PER_REQUEST = 6
"""A probe whose outcome never came, because its request had gone, is forgotten after so many rounds of each other."""


class ProbeBudget:
    """Earns a fraction of the working time, smaller after every failure, and pays the probes' extra seconds."""

    def __init__(self) -> None:
        self._fraction = MAX_FRACTION
        self._credit_s = 0.0
        self._rounds = 0
        self._forgotten_at = 0  # in rounds: when a probe that is out is given up
        self._out_is_first = False

    def earn(self, busy_s: float) -> None:
        """Called for every round, with the seconds of work that it stands for."""
        self._rounds += 1
        self._credit_s += self._fraction * busy_s

    def allows(self, cost_s: float, *, first: bool) -> bool:
        """Whether a probe that costs so many seconds more than plain tokens may start now; one at a time.

        The ``first`` ones, which tell what a draft is good for at all, need not be earned.
        """
        self._credit_s = min(self._credit_s, MAX_SAVED_PROBES * cost_s)
        return not self.is_out and (first or self._credit_s >= cost_s)

    @property
    def is_out(self) -> bool:
        """Whether a probe's outcome is awaited."""
        return self._rounds < self._forgotten_at

    def start(self, running: int, *, first: bool) -> None:
        """A probe of one of ``running`` requests; ``first`` as it was allowed."""
        self._forgotten_at, self._out_is_first = self._rounds + LOST_ROUNDS_PER_REQUEST * running, first

    def end(self, cost_s: float, *, kept: bool) -> None:
        """A probe's outcome: what it cost more than plain tokens, and whether all of its draft was kept."""
        self._forgotten_at = 0
        if not self._out_is_first:
            self._credit_s -= cost_s
        self._fraction = MAX_FRACTION if kept else max(MIN_FRACTION, self._fraction * BACK_OFF)
