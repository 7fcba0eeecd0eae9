"""The rounds of one answer: what each does is planned by a policy, proposed by a source, timed and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from .draft_sources import DraftSource, ModelDrafts, NgramDrafts
from .drafting import DraftPolicy, FixedLength, RoundOutcome, RoundPlan, Source
from .engine_calls import NO_DRAFT, Accept, Draft, DraftFailed, Engines
from .token_answer import SpeculationRequest, TokenAnswer

STREAM_CHUNK_TOKENS = 8
"""Tokens a call when the target streams alone, after a first call of one token, or tells log-probabilities."""

PLAIN_CHUNK_TOKENS = 32
"""Tokens a call when nobody waits for the first words: enough that calls cost nothing, few enough that a client who
has left, or others who wait for the engine, are seen within a second or so. A running call cannot be given up."""


@dataclass
class RoundCounts:
    """Drafted and accepted tokens of every round, and who drafted, one entry a round; and where they are wanted,
    ``log_probs`` of every id of the answer. ``fell_back`` tells that the draft engine failed this request."""

    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    fell_back: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What a request runs in.

    ``accept`` and ``sources`` are what the deployment offers. ``running`` is how many requests are in flight now,
    ``check`` raises when nobody waits for this one any more, ``watch`` is shown every round.
    """

    accept: Accept = "tokens"
    sources: frozenset[Source] = frozenset({"model"})
    running: Callable[[], int] = lambda: 1
    check: Callable[[], None] = lambda: None
    watch: Callable[[RoundOutcome], None] = lambda outcome: None


def fixed_length(request: SpeculationRequest, length: int, source: Source = "model") -> FixedLength:
    """``length`` tokens a round; where nothing can be drafted, a chunk that suits who waits for the answer."""
    # Log-probabilities may cost a row of logits for every token, which a call has to carry.
    is_short = request.streams or request.wants_log_probs
    return FixedLength(length, source, STREAM_CHUNK_TOKENS if is_short else PLAIN_CHUNK_TOKENS)


class Rounds:
    """Plans, proposes and counts. A draft engine that fails is not asked again: the target goes on alone."""

    def __init__(
        self,
        engines: Engines,
        request: SpeculationRequest,
        answer: TokenAnswer,
        counts: RoundCounts,
        policy: DraftPolicy,
        around: Surroundings,
    ) -> None:
        self._request, self._answer, self._counts = request, answer, counts
        self._policy, self._around = policy, around
        self._model = ModelDrafts(engines, answer)
        self._ngrams = NgramDrafts(answer) if "ngram" in around.sources and request.draft_len else None
        self._plan = RoundPlan(0)
        self._running = self._cold_tokens = 0
        self._draft = NO_DRAFT
        self._began_at = self._drafted_at = 0.0

    @property
    def _speculates(self) -> bool:
        return self._request.draft_len > 0 and not self._counts.fell_back

    async def propose(self) -> Draft:
        """The draft of the next round; empty if the target is to go on alone."""
        self._running, self._cold_tokens = self._around.running(), self._model.cold_tokens
        self._plan, self._draft = self._next_plan(), NO_DRAFT
        self._began_at = self._drafted_at = perf_counter()
        if self._plan.length:
            try:
                self._draft = await self._source().propose(self._plan.length)
            except DraftFailed:
                self._counts.fell_back = True
                self._plan = self._next_plan()
            self._drafted_at = perf_counter()
        return self._draft

    @property
    def asked_tokens(self) -> int:
        """What the target is asked for: one token more than was drafted, or what it does alone."""
        return len(self._draft.ids) + 1 if self._plan.length else self._plan.plain_tokens

    def go_ahead(self) -> None:
        """Lets the draft model draft on while the target verifies, where the plan says so."""
        if not self._plan.ahead:
            return
        length = len(self._draft.ids)
        # A draft that ended early has nothing to go on with, and logits that nobody fetches would stay for ever.
        goes_on = 0 < length == self._plan.length and not self._draft.is_handle
        next_length = min(length, self._answer.room_tokens - length - 2)
        if goes_on and next_length > 0 and self._source() is self._model:
            self._model.go_ahead(next_length)

    def settle(self, accepted: int, new_tokens: int) -> None:
        """Counts the round that the target has just verified, before its tokens join the answer."""
        now, drafted = perf_counter(), len(self._draft.ids)
        plan = self._plan
        if plan.length and plan.source == "model":
            self._model.verified(accepted)
        outcome = RoundOutcome(
            plan=plan,
            running=self._running,
            drafted=drafted,
            accepted=accepted,
            new_tokens=new_tokens,
            draft_s=self._drafted_at - self._began_at if plan.length else 0.0,
            target_s=now - self._drafted_at,
            cold_tokens=self._cold_tokens,
        )
        if self._speculates:
            if self.asked_tokens == drafted + 1:
                self._counts.drafted.append(drafted)
                self._counts.accepted.append(accepted)
                self._counts.sources.append(plan.source)
            if not self._waits_for_first_word:
                self._policy.observe(outcome)
        self._around.watch(outcome)

    @property
    def _waits_for_first_word(self) -> bool:
        """Who does is not made to wait for the draft to read the prompt as well."""
        return self._request.streams and self._answer.is_empty

    def _next_plan(self) -> RoundPlan:
        room = self._answer.room_tokens
        if self._waits_for_first_word:
            return RoundPlan(0, plain_tokens=1)
        if not self._speculates:
            return fixed_length(self._request, 0).plan(running=1, room_tokens=room, ngram_tokens=0, cold_tokens=0)
        may_draft = min(self._request.draft_len, room - 1)
        has_match = may_draft > 0 and self._ngrams is not None and self._ngrams.has_match
        return self._policy.plan(
            running=self._running,
            room_tokens=room,
            ngram_tokens=may_draft if has_match else 0,
            cold_tokens=self._cold_tokens,
        )

    def _source(self) -> DraftSource:
        return self._ngrams if self._plan.source == "ngram" and self._ngrams is not None else self._model
