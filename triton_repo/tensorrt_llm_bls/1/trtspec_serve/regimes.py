"""Whether a group of requests should draft at all: tokens/s of all together with and without, measured in turns.

A request sees what its own rounds cost, and not what they cost the others: a draft that takes the processor from the
target, a verification that makes everybody's step longer. So where several requests run, what each of them would choose
is allowed only while all together are not slower for it. Times drift, so the way in use is compared with a trial of the
other right behind it, and a verdict stands for longer the more often it was the same.
"""

from __future__ import annotations

MEMORY_S = 10.0
"""Seconds of calls, summed over requests, by which older ones have faded."""

MIN_WINDOW_CALLS = 6
WINDOW_CALLS = 2
"""Calls of every request in flight that tell how fast a way is."""

MUST_GAIN = 1.03
"""What drafting must gain over the target alone. Where it gains nothing calls of the target are short for nothing."""

TRIAL_FRACTION = 0.01
"""Of the working time at this load, what trials may lose."""

MIN_HOLD_S = 5.0
MAX_HOLD_S = 320.0
"""A verdict stands for so long, twice as long each time, or until what the trial has lost is earned."""


class Rate:
    """Tokens a second of one request, averaged over those in flight."""

    __slots__ = ("calls", "seconds", "tokens")

    def __init__(self) -> None:
        self.tokens, self.seconds, self.calls = 0.0, 0.0, 0

    def add(self, tokens: float, seconds: float) -> None:
        keep = max(0.0, 1.0 - seconds / MEMORY_S)
        self.tokens = self.tokens * keep + tokens
        self.seconds = self.seconds * keep + seconds
        self.calls += 1

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


class Regime:
    """Drafting or not at one load; it starts as ``drafts`` says, the planner's word, and soon tries the other way.

    ``epoch`` counts the changes: a call counts for the regime it began in. ``busy_s``, the time that requests were in
    flight at this load, is the clock: a load that is seldom met would otherwise pay for a trial whenever it is.
    """

    def __init__(self, *, drafts: bool) -> None:
        self.drafts = drafts
        self.epoch = 0
        self.busy_s = 0.0
        self.is_on_trial = False
        self._now = Rate()
        self._before_tokens_per_s = 0.0  # of the way that a trial may end
        self._hold_s = MIN_HOLD_S
        self._began_s = self._next_trial_s = 0.0

    def observe(self, tokens: float, seconds: float) -> None:
        """A call that began and ended in this regime; ``tokens`` are those to expect of such a call."""
        self._now.add(tokens, seconds)

    def decide(self, running: int) -> bool:
        """Whether to draft now."""
        if self._now.calls < max(MIN_WINDOW_CALLS, WINDOW_CALLS * running):
            return self.drafts
        if self.is_on_trial:
            self._judge()
        elif self.busy_s >= self._next_trial_s:
            self._before_tokens_per_s, self.is_on_trial = self._now.tokens_per_s, True
            self._change()
        return self.drafts

    def _judge(self) -> None:
        gain = self._now.tokens_per_s / self._before_tokens_per_s
        self.is_on_trial = False
        if gain > (MUST_GAIN if self.drafts else 1.0 / MUST_GAIN):
            self._hold_s = MIN_HOLD_S
        else:
            lost_s = (self.busy_s - self._began_s) * (1.0 - gain)
            self._hold_s = max(lost_s / TRIAL_FRACTION, min(2 * self._hold_s, MAX_HOLD_S))
            self._change()
        self._next_trial_s = self.busy_s + self._hold_s

    def _change(self) -> None:
        self.drafts, self._began_s = not self.drafts, self.busy_s
        self.epoch += 1
        self._now = Rate()
