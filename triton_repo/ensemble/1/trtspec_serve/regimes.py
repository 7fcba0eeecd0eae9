"""Whether a group of requests should draft at all: total tokens/s with and without, measured in turns.

A request sees what its own rounds cost, and not what they cost the others: a draft that takes the processor from the
target, a verification that makes everybody's step longer. So where several requests run, what each of them would choose
is allowed only while all together are not slower for it.
"""

from __future__ import annotations

MEMORY_S = 10.0
"""Seconds of calls, summed over requests, by which older ones have faded."""

TRIAL_CALLS = 1
"""Calls of every request in flight, behind the first, that a regime is judged by."""

MIN_TRIAL_CALLS = 6

OFF_MUST_GAIN = 1.03
HASTE = 0.7
ON_MUST_GAIN = 1.05
UNPLANNED_MUST_GAIN = 1.25
"""What drafting must promise before it is tried; more where the planner's table says that it does not pay."""

TRIAL_FRACTION = 0.01
"""Of the working time, what trials of the regime that lost may cost."""

HOLD_GROWTH = 2.0


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
    """Drafting allowed or not at one load; at first it is not, because the target alone has to be measured in peace.

    ``planned`` tells whether the planner expects it to pay. ``epoch`` counts the changes: a call counts for the regime
    it began in.
    """

    def __init__(self, *, planned: bool = True) -> None:
        self.drafts = False
        self._must_gain = ON_MUST_GAIN if planned else UNPLANNED_MUST_GAIN
        self.epoch = 0
        self._rate = Rate()
        self._began_s = 0.0
        self._needed_calls = 0
        self._next_trial_s = 0.0
        self._hold_s = 0.0

    def observe(self, tokens: float, seconds: float) -> None:
        """A call that began and ended while all may draft; ``tokens`` are those to expect of such a call."""
        self._rate.add(tokens, seconds)

    @property
    def is_on_trial(self) -> bool:
        return self.drafts and self._rate.calls < self._needed_calls

    def decide(
        self, busy_s: float, running: int, plain_s: float | None, gain: float | None, measured_plain_s: float | None
    ) -> bool:
        """Whether to draft now. ``gain`` of drafting is what requests predict, ``plain_s`` a token without it, both
        None if unknown. The latter may be a hopeful guess; ``measured_plain_s`` is what was seen while nobody drafted.
        """
        if plain_s is None or gain is None:
            return self.drafts
        if self.drafts:
            self._needed_calls = max(MIN_TRIAL_CALLS, TRIAL_CALLS * running)
            off, on = 1.0 / plain_s, self._rate.tokens_per_s
            # A clear loss ends a trial at once; where it is slight, lengths still have time to settle.
            margin = OFF_MUST_GAIN + HASTE / max(1, self._rate.calls)
            if not self.is_on_trial and off > margin * on:
                if measured_plain_s and margin * on * measured_plain_s < 1.0:
                    self._refuse(busy_s, on * measured_plain_s)
                self._change(busy_s, drafts=False)
        elif busy_s >= self._next_trial_s and gain > self._must_gain:
            self._change(busy_s, drafts=True)
        return self.drafts

    def _refuse(self, busy_s: float, ratio: float) -> None:
        """Drafting gave ``ratio`` of what the target alone gives: when to try again."""
        lost_s = (busy_s - self._began_s) * (1.0 - ratio)
        self._hold_s = max(lost_s / TRIAL_FRACTION, HOLD_GROWTH * self._hold_s)
        self._next_trial_s = busy_s + self._hold_s

    def _change(self, busy_s: float, *, drafts: bool) -> None:
        self.drafts, self._began_s = drafts, busy_s
        self.epoch += 1
        self._rate = Rate()
