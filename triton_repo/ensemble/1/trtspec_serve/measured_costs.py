"""What rounds cost, as measured: seconds by draft source and length, and by how many requests are in flight.

Lengths are measured as a whole, not summed up from engine steps: beside others a call also waits for the step that
runs, which no step time tells. A length that was not tried yet is told from the nearest one that was.

A plain token beside others that draft takes longer than beside others that do not, so both are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .drafting import Source

MEMORY_SAMPLES = 12
OUTLIER_FACTOR = 2.0
"""A sample counts as at most so many times the average, and at least one part in so many."""

VERIFY_TOKEN_FRACTION = 0.03
"""Of a target step, what one more token to verify costs: taken until two lengths have been measured."""

DRAFT_STEP_FRACTION = 0.3
"""Of a target step, what a draft step costs: taken until one was measured."""

COLD_TOKEN_FRACTION = 0.2
"""Of a draft step, what one token costs that the draft engine reads to catch up: taken until that was measured."""

MIN_COLD_TOKENS = 16
"""A draft call with fewer such tokens tells what drafting costs, one with more what catching up costs."""

STALE_S = 60.0
STALE_GAIN = 0.06
"""What was not measured for so many seconds of work may cost so much less by now: it is worth another trial."""

UNTRIED_GAIN = 0.04
"""What was never measured may cost so much less than it is told from others."""

LINE_SAMPLES = 1.5
"""What the line through all lengths tells of one counts as so many samples of it: a single one may be an accident."""

SLOPE_SAMPLES = 8.0
MIN_LINE_FRACTION = 0.2

SHORTEST_S = 1e-6

MIN_STEP_FRACTION = 0.9
"""A plain step of a single request may cost this little of a verification, which feeds more tokens."""

MIN_OTHERS_FRACTION = 0.65
"""A plain token may cost this little of one amid others that draft."""


class MovingTime:
    """Average of the last samples, of which none counts for much more than the others."""

    __slots__ = ("at_s", "samples", "value")

    def __init__(self) -> None:
        self.value, self.samples, self.at_s = 0.0, 0, 0.0

    def add(self, sample: float, at_s: float) -> None:
        sample = max(sample, SHORTEST_S)  # a clock may not tell less from nothing
        if self.samples >= 2:
            sample = min(max(sample, self.value / OUTLIER_FACTOR), self.value * OUTLIER_FACTOR)
        self.samples = min(self.samples + 1, MEMORY_SAMPLES)
        self.value += (sample - self.value) / self.samples
        self.at_s = at_s

    def hoped(self, at_s: float) -> float:
        """The value, somewhat less if it is old."""
        return self.value * (1.0 - STALE_GAIN * min(1.0, (at_s - self.at_s) / STALE_S))


Rounds = dict[int, MovingTime]


@dataclass
class LoadCosts:
    """Costs while about so many requests are in flight, in seconds.

    ``plain`` is a token of the target alone, by whether others may draft; ``verified`` the target's part of a round.
    """

    plain: dict[bool, MovingTime] = field(default_factory=lambda: {True: MovingTime(), False: MovingTime()})
    rounds: dict[Source, Rounds] = field(default_factory=dict)
    verified: MovingTime = field(default_factory=MovingTime)
    draft_token: MovingTime = field(default_factory=MovingTime)

    def plain_of(self, amid_drafts: bool) -> MovingTime:
        own = self.plain[amid_drafts]
        return own if own.samples else self.plain[not amid_drafts]


def load_of(running: int) -> int:
    """1, 2, 3-4, 5-8, 9-16, ... requests share their costs: the index of such a range."""
    return max(0, running - 1).bit_length()


def waited_steps(running: int) -> float:
    """How long a call beside others waits for the step that runs when it comes."""
    return 1.0 - 1.0 / running


class MeasuredCosts:
    """All measured times; ``busy_s`` is the time that requests were in flight, the clock of everything here."""

    def __init__(self) -> None:
        self.busy_s = 0.0
        self._loads: dict[int, LoadCosts] = {}
        self._cold_token = MovingTime()
        self._told: dict[tuple[int, Source], Callable[[int], float] | None] = {}

    def load(self, running: int) -> LoadCosts:
        key = load_of(running)
        if key not in self._loads:
            self._loads[key] = LoadCosts()
        return self._loads[key]

    def add_plain(self, running: int, seconds: float, tokens: int, *, amid_drafts: bool) -> None:
        """A call of the target alone."""
        self._told.clear()
        sample_s = seconds / (tokens + waited_steps(running))
        self.load(running).plain[amid_drafts and running > 1].add(sample_s, self.busy_s)

    def add_round(self, running: int, source: Source, length: int, draft_s: float, target_s: float) -> None:
        self._told.clear()
        load = self.load(running)
        load.rounds.setdefault(source, {}).setdefault(length, MovingTime()).add(draft_s + target_s, self.busy_s)
        load.verified.add(target_s, self.busy_s)
        if source == "model":
            load.draft_token.add(draft_s / length, self.busy_s)

    def add_cold(self, running: int, length: int, draft_s: float, cold_tokens: int) -> None:
        """A draft call that had to read ``cold_tokens`` first."""
        self._cold_token.add(max(0.0, draft_s - length * self._draft_token_s(running)) / cold_tokens, self.busy_s)

    def plain_s(self, running: int, *, amid_drafts: bool) -> float | None:
        """Seconds of a plain token; a hopeful guess where it was measured amid drafts only, None where not at all."""
        load = self.load(running)
        if load.plain[amid_drafts].samples:
            return load.plain[amid_drafts].hoped(self.busy_s)
        if amid_drafts and load.plain[False].samples:
            return load.plain[False].hoped(self.busy_s)
        if load.plain[True].samples:
            return load.plain[True].value * MIN_OTHERS_FRACTION
        if running == 1:
            return load.verified.value * MIN_STEP_FRACTION if load.verified.samples else None
        known = {key: other.plain[False].value for key, other in self._loads.items() if other.plain[False].samples}
        if not known:
            return None
        own = load_of(running)
        nearest = min(known, key=lambda key: (abs(key - own), key))
        # A step of more requests never costs less than one of fewer.
        return known[nearest] * (1.0 if nearest < own else MIN_OTHERS_FRACTION)

    def catch_up_s(self, running: int, source: Source, cold_tokens: int) -> float:
        """Seconds that the draft engine needs for text it has not seen; what each round leaves is part of rounds."""
        if source != "model" or cold_tokens < MIN_COLD_TOKENS:
            return 0.0
        if self._cold_token.samples:
            return cold_tokens * self._cold_token.value
        return cold_tokens * COLD_TOKEN_FRACTION * self._draft_token_s(running)

    def has_rounds(self, running: int, source: Source) -> bool:
        """Whether a round of this source was measured at this load."""
        return bool(self.load(running).rounds.get(source))

    def round_s(self, running: int, source: Source) -> Callable[[int], float] | None:
        """Seconds of a round by length; None where nothing of this source was measured at any load.

        Good until the next round is added.
        """
        key = load_of(running), source
        if key not in self._told:
            self._told[key] = self._tell_round_s(running, source)
        return self._told[key]

    def _tell_round_s(self, running: int, source: Source) -> Callable[[int], float] | None:
        load, scale = self.load(running), 1.0
        rounds = load.rounds.get(source)
        if not rounds:
            nearest = self._nearest(running, source)
            if nearest is None:
                # Looking up takes no time of its own: a round of it is a verification.
                verified_s = load.verified.value if source == "ngram" else 0.0
                return (lambda length: verified_s) if verified_s else None
            load, scale = nearest
            rounds = load.rounds[source]
        weight = sum(time.samples for time in rounds.values())
        middle = sum(length * time.samples for length, time in rounds.items()) / weight
        mean_s = sum(time.value * time.samples for time in rounds.values()) / weight
        slope_s = self._slope_s(rounds, load, source, middle, mean_s)

        def seconds(length: int) -> float:
            line_s = max(mean_s + (length - middle) * slope_s, MIN_LINE_FRACTION * mean_s)
            time = rounds.get(length)
            if time is not None:
                share = time.samples / (time.samples + LINE_SAMPLES)
                return scale * (share * time.hoped(self.busy_s) + (1.0 - share) * line_s)
            return scale * line_s * (1.0 - UNTRIED_GAIN)

        return seconds

    def _slope_s(self, rounds: Rounds, load: LoadCosts, source: Source, middle: float, mean_s: float) -> float:
        """Seconds that a round grows with every drafted token: a line through the lengths that were tried, which the
        draft step's own time holds until they are many."""
        prior_s = (load.plain_of(True).value or load.verified.value) * VERIFY_TOKEN_FRACTION
        if source == "model":
            prior_s += load.draft_token.value
        spread, covered = SLOPE_SAMPLES, SLOPE_SAMPLES * prior_s
        for length, time in rounds.items():
            spread += time.samples * (length - middle) ** 2
            covered += time.samples * (length - middle) * (time.value - mean_s)
        return max(0.0, covered / spread)

    def _nearest(self, running: int, source: Source) -> tuple[LoadCosts, float] | None:
        """The nearest load where this source was measured, and how much longer a plain token takes here."""
        own = load_of(running)
        others = [key for key, load in self._loads.items() if load.rounds.get(source)]
        if not others:
            return None
        load = self._loads[min(others, key=lambda key: abs(key - own))]
        here, there = self.load(running).plain_of(False), load.plain_of(False)
        return load, here.value / there.value if here.samples and there.samples else 1.0

    def _draft_token_s(self, running: int) -> float:
        load = self.load(running)
        if load.draft_token.samples:
            return load.draft_token.value
        return DRAFT_STEP_FRACTION * (self.plain_s(running, amid_drafts=False) or 0.0)
