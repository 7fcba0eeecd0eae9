"""What a round of speculation may do, and who decides it: the contract of the loop with draft-length policies."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

Source = Literal["model", "ngram"]
"""Who drafts: the draft model, or n-gram lookup in prompt and output."""


class RoundPlan(NamedTuple):
    """What one round does: ``length`` tokens drafted by ``source`` (0: the target alone for ``plain_tokens``)."""

    length: int
    source: Source = "model"
    plain_tokens: int = 0
    """Tokens to ask the target for when length is 0."""
    ahead: bool = False
    """Let the draft model go on while the target verifies (PEARL)."""


class RoundOutcome(NamedTuple):
    """What a round did, and what it took."""

    plan: RoundPlan
    running: int
    """Requests in flight in this orchestrator when the round began, those whose prompt was being read included."""
    drafted: int
    """Tokens really drafted (0: none proposed)."""
    accepted: int
    new_tokens: int
    """Tokens the target returned."""
    draft_s: float
    """Seconds of the draft call that this round waited for (0.0: none)."""
    target_s: float
    """Seconds of the target call."""
    cold_tokens: int
    """Tokens the draft engine had not seen before this round (its catch-up prefill)."""


class DraftPolicy(Protocol):
    """Decides the rounds of one request."""

    def plan(self, *, running: int, room_tokens: int, ngram_tokens: int, cold_tokens: int) -> RoundPlan:
        """The next round: at most ``room_tokens`` - 1 drafted tokens, so that every one of them can still be used.

        ``running`` counts the requests in flight now; ``ngram_tokens`` is how many tokens the n-gram lookup would
        propose now (0: no match, or not allowed).
        """
        ...

    def observe(self, outcome: RoundOutcome) -> None: ...


class FixedLength:
    """Always ``length`` tokens of one source: the client's choice, or a deployment that does not adapt.

    Where nothing can be drafted the target is asked for ``plain_tokens`` at once, or for ``retry_tokens`` by a source
    that may have something again behind the next few tokens.
    """

    def __init__(self, length: int, source: Source, plain_tokens: int, *, retry_tokens: int = 4) -> None:
        self._length = length
        self._source: Source = source
        self._plain_tokens = min(plain_tokens, retry_tokens) if length and source == "ngram" else plain_tokens

    def plan(self, *, running: int, room_tokens: int, ngram_tokens: int, cold_tokens: int) -> RoundPlan:
        length = min(self._length, room_tokens - 1)
        if self._source == "ngram":
            length = min(length, ngram_tokens)
        if length > 0:
            return RoundPlan(length, self._source)
        return RoundPlan(0, self._source, plain_tokens=min(room_tokens, self._plain_tokens))

    def observe(self, outcome: RoundOutcome) -> None:
        """What is fixed learns nothing."""
