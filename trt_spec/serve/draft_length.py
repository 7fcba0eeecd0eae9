"""The draft length that pays most now: chosen for each request and round from measured acceptance and measured times.

    goodput(n) = E[new tokens | n drafted] / round_s(n, requests in flight),   goodput(0) = 1 / plain_token_s

The goodput of SmartSpec (arXiv 2406.14066), with the acceptance of each request for itself and length 0 allowed. The
planner's table tells where to start. Where several requests run, all of them together draft or not, whichever gave more
tokens/s when measured in turns (``regimes``). Lengths that were not tried at a load are expected to cost a little less
than their neighbours tell, so each is tried once where it may pay. Where requests that may draft choose not to, probes
within a budget find out when it pays again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from .acceptance_estimate import PooledAcceptance, RequestAcceptance
from .draft_ahead import AheadTrial
from .drafting import RoundOutcome, RoundPlan, Source
from .measured_costs import MIN_COLD_TOKENS, MeasuredCosts, load_of, waited_steps
from .plain_chunk import plain_chunk_tokens
from .probes import ProbeBudget
from .regimes import Regime

HYSTERESIS = 1.05
"""What drafting must gain over the target alone, or the other way round, before a request changes over."""

LENGTH_HYSTERESIS = 1.02
TRIAL_GAIN = 0.9
"""While drafting is on trial for all requests, those that might lose a little by it take part."""

GOOD_RATE = 0.95
"""Acceptance that a draft may have at best: where even this would not pay, no probe is sent."""

PROBE_TOKENS = 2
MIN_PLAIN_SAMPLE_TOKENS = 4
MIN_EXPECTED_TOKENS = 1.5
"""Before times are known: where a round is not expected to give so many, the target goes on alone."""

AMORTISED_TOKENS = 128
"""An answer is expected to go on for half of its room, and for no more than this: what catching up must pay within."""

SETTLED_ROUNDS = 4.0
"""Rounds of its own that tell whether a request's drafts are any good."""

RoundSeconds = Callable[[int], float]
Choice = tuple[Source, int]


class SharedCosts:
    """What the requests of one orchestrator model learn together: times, acceptance, and what probes have cost.

    ``draft_len_by_running`` is the planner's table: lengths for 1, 2, ... requests in flight, its last for all beyond;
    ValueError if it is none. ``allow_ahead`` lets rounds be tried that draft ahead. For one thread at a time.
    """

    def __init__(self, draft_len_by_running: str, *, allow_ahead: bool = False) -> None:
        self.costs = MeasuredCosts()
        self.probes = ProbeBudget()
        self._table = _parse_table(draft_len_by_running)
        self._allow_ahead = allow_ahead
        self._pools: dict[tuple[Source, int], PooledAcceptance] = {}
        self._regimes: dict[int, Regime] = {}
        self._ahead: dict[int, AheadTrial] = {}

    def follow(self, sources: Collection[Source], max_len: int, streams: bool) -> AdaptiveLength:
        """The policy of a new request, which may draft at most ``max_len`` tokens a round from one of ``sources``.

        ``streams`` keeps calls of the target alone short: for a client who reads along, or wants log-probabilities.
        """
        pools = {
            source: self._pools.setdefault((source, max_len), PooledAcceptance(max_len)) for source in sorted(sources)
        }
        return AdaptiveLength(self, pools, max_len, streams)

    def table_length(self, running: int) -> int:
        return self._table[min(max(running, 1), len(self._table)) - 1]

    def first_length(self, running: int) -> int:
        """The planner's length, which stands until rounds were measured; a short one where it expects no gain."""
        return self.table_length(running) or PROBE_TOKENS

    def regime(self, running: int) -> Regime:
        return self._regimes.setdefault(load_of(running), Regime(drafts=self.table_length(running) > 0))

    def ahead(self, running: int, source: Source) -> AheadTrial | None:
        """The trial of drafting ahead at this load; None where that is not allowed, or would save no time."""
        if source != "model" or not self._allow_ahead:
            return None
        return self._ahead.setdefault(load_of(running), AheadTrial())

    def may_draft(self, running: int) -> bool:
        """Whether requests may draft now. One request alone is in nobody's way."""
        return running <= 1 or self.regime(running).decide(running)


class AdaptiveLength:
    """The policy of one request (``DraftPolicy``)."""

    def __init__(self, shared: SharedCosts, pools: dict[Source, PooledAcceptance], max_len: int, streams: bool) -> None:
        self._shared = shared
        self._pools = pools
        self._acceptance = {source: RequestAcceptance(pool) for source, pool in pools.items()}
        self._max_len = max_len
        self._streams = streams
        self._last: Choice | None = None  # None: the target alone
        self._probes = False
        self._drafts = True
        self._epoch = (-1, -1)  # load and regime of the last plan
        self._counts = False  # whether the one before was of the same
        self._expected_tokens = 0.0  # of the round that is under way; 0.0 where that is known beforehand

    def plan(self, *, running: int, room_tokens: int, ngram_tokens: int, cold_tokens: int) -> RoundPlan:
        """The next round; a few tens of microseconds."""
        shared = self._shared
        self._drafts = shared.may_draft(running)
        epoch = (load_of(running), shared.regime(running).epoch)
        self._counts, self._epoch = epoch == self._epoch, epoch
        caps = {source: self._cap(source, room_tokens, ngram_tokens) for source in self._pools}
        chosen = self._choose(running, room_tokens, caps, cold_tokens) if self._drafts else None
        self._probes, self._expected_tokens = False, 0.0
        if chosen is None and self._drafts and (probe := self._probe(running, caps, cold_tokens)):
            self._probes = True
            shared.probes.start(running, first=not self._pools[probe[0]].is_known)
            return RoundPlan(probe[1], probe[0])
        self._last = chosen
        if chosen is None:
            return RoundPlan(0, plain_tokens=min(room_tokens, self._plain_tokens(running)))
        source, length = chosen
        self._expected_tokens = self._acceptance[source].expected_tokens(length)[-1]
        trial = None if shared.regime(running).is_on_trial else shared.ahead(running, source)
        return RoundPlan(length, source, ahead=trial is not None and trial.wants(shared.regime(running).busy_s))

    def observe(self, outcome: RoundOutcome) -> None:
        shared, plan, running = self._shared, outcome.plan, max(1, outcome.running)
        costs = shared.costs
        seconds = outcome.draft_s + outcome.target_s
        regime = shared.regime(running)
        costs.busy_s += seconds / running
        regime.busy_s += seconds / running
        shared.probes.earn(seconds / running)
        if outcome.drafted:
            # An answer that ends with an accepted token has refused none.
            refused = outcome.new_tokens > outcome.accepted
            self._acceptance[plan.source].add(outcome.drafted, outcome.accepted, rejected=refused)
        if self._probes:
            self._probes = False
            plain_s = costs.plain_s(running, amid_drafts=self._drafts)
            extra_s = seconds - outcome.new_tokens * plain_s if plain_s else 0.0
            shared.probes.end(extra_s, kept=outcome.accepted == outcome.drafted > 0)
        # The first call has read the prompt, and the first of a regime began amid the other.
        counts = self._counts and regime.epoch == self._epoch[1]
        if counts:
            # While all go on alone calls are long, and lose little by the step they wait for; those of a trial are not.
            waited = 0.0 if self._drafts else waited_steps(running)
            regime.observe(self._expected_tokens or outcome.new_tokens + waited, seconds)
        self._learn_costs(outcome, running, counts)

    def _learn_costs(self, outcome: RoundOutcome, running: int, counts: bool) -> None:
        costs, plan, drafted = self._shared.costs, outcome.plan, outcome.drafted
        seconds = outcome.draft_s + outcome.target_s
        if drafted and plan.source == "model" and outcome.cold_tokens >= MIN_COLD_TOKENS:
            costs.add_cold(running, drafted, outcome.draft_s, outcome.cold_tokens)
        elif not counts:
            return
        elif drafted:
            trial = self._shared.ahead(running, plan.source)
            round_s = costs.round_s(running, plan.source)
            if trial is not None and round_s is not None and not self._probes:
                trial.observe(plan.ahead, seconds / round_s(drafted), self._shared.regime(running).busy_s)
            if not plan.ahead:
                costs.add_round(running, plan.source, drafted, outcome.draft_s, outcome.target_s)
        elif not plan.length and outcome.new_tokens >= MIN_PLAIN_SAMPLE_TOKENS:
            costs.add_plain(running, outcome.target_s, outcome.new_tokens, amid_drafts=self._drafts)

    def _cap(self, source: Source, room_tokens: int, ngram_tokens: int) -> int:
        """The longest draft that this round can use."""
        cap = min(self._max_len, room_tokens - 1)
        return max(0, min(cap, ngram_tokens) if source == "ngram" else cap)

    def _choose(self, running: int, room_tokens: int, caps: dict[Source, int], cold_tokens: int) -> Choice | None:
        """Source and length of the greatest goodput; None for the target alone."""
        costs = self._shared.costs
        plain_s = costs.plain_s(running, amid_drafts=True)
        best: Choice | None = None
        best_gain = HYSTERESIS if self._last is None else 1.0 / HYSTERESIS
        if running > 1 and self._shared.regime(running).is_on_trial:
            best_gain = TRIAL_GAIN
        for source, cap in caps.items():
            round_s = costs.round_s(running, source)
            expected = self._acceptance[source].expected_tokens(cap)
            if round_s is None or plain_s is None:
                length = min(self._shared.first_length(running), cap)
                if best is None and length and expected[length] >= MIN_EXPECTED_TOKENS:
                    best = source, length
                continue
            if not costs.has_rounds(running, source):
                cap = min(cap, self._shared.first_length(running))
            late_s = costs.catch_up_s(running, source, cold_tokens) / min(AMORTISED_TOKENS, max(1, room_tokens // 2))
            trial = self._shared.ahead(running, source)
            faster = trial.ratio if trial else 1.0
            for length in range(1, cap + 1):
                gain = plain_s / (faster * round_s(length) / expected[length] + late_s)
                if (source, length) == self._last:
                    gain *= LENGTH_HYSTERESIS
                if gain > best_gain:
                    best, best_gain = (source, length), gain
        return best

    def _probe(self, running: int, caps: dict[Source, int], cold_tokens: int) -> Choice | None:
        """A short draft to try although it may not pay; None if that could teach nothing, or costs too much now."""
        costs, probes = self._shared.costs, self._shared.probes
        if probes.is_out:
            return None
        plain_s = costs.plain_s(running, amid_drafts=self._drafts)
        for source, cap in caps.items():
            # The first ones stand for what the planner expects to be best.
            first = 0 if self._pools[source].is_known else self._shared.first_length(running)
            length = min(first or PROBE_TOKENS, cap)
            if not length:
                continue
            round_s = costs.round_s(running, source)
            late_s = costs.catch_up_s(running, source, cold_tokens)
            if round_s is None or plain_s is None:
                extra_s = length * (plain_s or 0.0) / 2 + late_s
            elif not _could_pay(round_s, plain_s, cap):
                continue
            else:
                extra_s = max(round_s(length) - plain_s, 0.0) + late_s
            if probes.allows(extra_s, first=not self._pools[source].is_known):
                return source, length
        return None

    def _plain_tokens(self, running: int) -> int:
        """How many tokens the next call of the target alone asks for."""
        shared = self._shared
        costs = shared.costs
        unknown = not any(pool.is_known for pool in self._pools.values())
        own_rounds = max(own.rounds for own in self._acceptance.values())
        return plain_chunk_tokens(
            running,
            costs.load(running).plain_of(self._drafts).value,
            streams=self._streams,
            on_trial=not self._drafts and shared.regime(running).is_on_trial,
            unsure=unknown or (self._drafts and own_rounds < SETTLED_ROUNDS),
            looks_up="ngram" in self._pools and self._looking_up_pays(running),
        )

    def _looking_up_pays(self, running: int) -> bool:
        """Whether a match, should there be one behind the next tokens, is worth a round."""
        costs = self._shared.costs
        plain_s, round_s = costs.plain_s(running, amid_drafts=True), costs.round_s(running, "ngram")
        if plain_s is None or round_s is None:
            return True
        length = min(PROBE_TOKENS, self._max_len)
        return self._acceptance["ngram"].expected_tokens(length)[-1] * plain_s > HYSTERESIS * round_s(length)


def _could_pay(round_s: RoundSeconds, plain_s: float, max_len: int) -> bool:
    """Whether the best acceptance there may be would make some length pay."""
    good, expected = 1.0, 1.0
    for length in range(1, max_len + 1):
        good *= GOOD_RATE
        expected += good
        if expected * plain_s > HYSTERESIS * round_s(length):
            return True
    return False


def _parse_table(text: str) -> tuple[int, ...]:
    """ "4,4,2,0" as numbers."""
    try:
        lengths = tuple(int(entry) for entry in text.split(","))
    except ValueError:
        lengths = ()
    if not lengths or min(lengths) < 0:
        raise ValueError(f"parameter draft_len_by_running is {text!r}, expected draft lengths such as 4,4,2,0")
    return lengths
