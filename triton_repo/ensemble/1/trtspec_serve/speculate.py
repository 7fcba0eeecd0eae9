"""Draft-target speculative decoding of one request: the loop, free of Triton and of text."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from .acceptance import count_accepted
from .sampling import Sampling
from .stopping import StopWords, find_stop

STREAM_CHUNK_TOKENS = 8
"""Tokens a call when the target streams alone, after a first call of one token, or tells log-probabilities."""

PLAIN_CHUNK_TOKENS = 64
"""Tokens a call when nobody waits for the first words: enough that calls cost nothing, few enough that a client who
has left, or others who wait for the engine, are seen within a second or so."""


@dataclass(frozen=True)
class SpeculationRequest:
    """``draft_len`` 0 leaves the target alone; ``end_ids`` end the answer and are not part of it, stop words are."""

    prompt_ids: Sequence[int]
    max_tokens: int
    draft_len: int
    end_ids: tuple[int, ...] = ()
    stop_words: StopWords = ()
    sampling: Sampling = field(default_factory=Sampling)
    streams: bool = False
    wants_log_probs: bool = False


@dataclass
class RoundCounts:
    """Drafted and accepted tokens of every round, one entry a round; and where they are wanted, ``log_probs`` of every
    id of the answer."""

    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class EngineCall:
    """One request to an engine: at most ``max_new_tokens`` behind ``ids``."""

    ids: Sequence[int]
    max_new_tokens: int
    sampling: Sampling
    end_id: int | None
    stop_words: StopWords
    draft_ids: Sequence[int] = ()
    wants_log_probs: bool = False


@dataclass(frozen=True)
class TargetTokens:
    """New ids without the end id, and their log-probabilities if the call wants them."""

    ids: list[int]
    log_probs: Sequence[float] = ()


class DraftFailed(Exception):
    """The draft engine cannot answer; the target alone still can."""


class Engines(Protocol):
    """The two engines; ``draft`` returns new ids, without the end id, or raises DraftFailed."""

    async def draft(self, call: EngineCall) -> list[int]: ...

    async def target(self, call: EngineCall) -> TargetTokens: ...


async def speculate(engines: Engines, request: SpeculationRequest, counts: RoundCounts) -> AsyncIterator[list[int]]:
    """Yields the new ids of each round: drafted by the one engine, verified by the other, until a stop.

    A round of n drafted tokens yields 1 to n + 1 ids, every one the target's own pick. Ids of ``end_ids`` are left out.
    A draft engine that fails is not asked again by this request.
    """
    answer = _Answer(request)
    speculates = request.draft_len > 0
    while (room := answer.room_tokens) > 0:
        # Who waits for the first word does not wait for the draft to read the prompt as well.
        drafts_now = speculates and not (request.streams and answer.is_empty)
        draft_len = min(request.draft_len, room - 1) if drafts_now else 0
        try:
            draft_ids = await engines.draft(answer.draft_call(draft_len)) if draft_len else []
        except DraftFailed:
            speculates, draft_ids = False, []
        asked = len(draft_ids) + 1 if speculates else _plain_chunk(request, room, answer.is_empty)
        told = await engines.target(answer.target_call(asked, draft_ids))
        accepted = count_accepted(draft_ids, told.ids)
        if speculates:
            counts.drafted.append(len(draft_ids))
            counts.accepted.append(accepted)
        # The engine leaves its end id out: an answer shorter than asked that no rejection explains has ended. (It
        # verifies all drafts or refuses the call; only chunked context, which is off, would drop some silently.)
        ended = len(told.ids) < asked and (accepted == len(told.ids) or not draft_ids)
        new_ids, stopped = answer.extend(told.ids)
        counts.log_probs.extend(told.log_probs[: len(new_ids)])
        yield new_ids
        if ended or stopped:
            return


class _Answer:
    """What there is of an answer, behind its prompt, and the calls that continue it."""

    def __init__(self, request: SpeculationRequest) -> None:
        self._request = request
        self._ids = list(request.prompt_ids)
        self._start = len(self._ids)
        # An engine takes one end id; the model's others stop it as stop words.
        self._end_id = request.end_ids[0] if request.end_ids else None
        self._more_ends: StopWords = tuple((other,) for other in request.end_ids[1:])
        self._stop_words: StopWords = (*request.stop_words, *self._more_ends)

    @property
    def is_empty(self) -> bool:
        return len(self._ids) == self._start

    @property
    def missing_tokens(self) -> int:
        """How many tokens the answer still lacks to its minimum length."""
        return max(0, self._request.sampling.rules.min_tokens - (len(self._ids) - self._start))

    @property
    def room_tokens(self) -> int:
        """How many the next round may add; 0 if the answer is as long as it may be."""
        room = self._start + self._request.max_tokens - len(self._ids)
        # What is banned for one call is banned for all of its tokens.
        return min(room, self.missing_tokens) if self._more_ends and self.missing_tokens else room

    def draft_call(self, max_new_tokens: int) -> EngineCall:
        return self._call("draft", max_new_tokens)

    def target_call(self, max_new_tokens: int, draft_ids: Sequence[int]) -> EngineCall:
        call = self._call("target", max_new_tokens)
        return replace(call, draft_ids=draft_ids, wants_log_probs=self._request.wants_log_probs)

    def _call(self, role: str, max_new_tokens: int) -> EngineCall:
        # A seed used twice would correlate the draws of different rounds, and draft with target.
        sampling = fresh_seed(self._request.sampling, f"{role}:{len(self._ids)}")
        missing = self.missing_tokens
        if sampling.rules.min_tokens:
            banned = self._more_ends if missing else ()  # an engine's minimum length holds for its one end id
            rules = replace(sampling.rules, min_tokens=missing, bad_words=(*sampling.rules.bad_words, *banned))
            sampling = replace(sampling, rules=rules)
        stop_words = self._request.stop_words if missing else self._stop_words
        return EngineCall(self._ids, max_new_tokens, sampling, self._end_id, stop_words)

    def extend(self, new_ids: Sequence[int]) -> tuple[list[int], bool]:
        """Takes the target's tokens up to the first stop; what was taken, and whether there was one."""
        ids, before = self._ids, len(self._ids)
        ids.extend(new_ids)
        stop = find_stop(ids, before, self._stop_words)
        if stop is not None:
            del ids[stop:]
        ends = len(ids) > before and ids[-1] in self._request.end_ids
        if ends:
            ids.pop()
        return ids[before:], ends or stop is not None


def fresh_seed(sampling: Sampling, purpose: str) -> Sampling:
    """The same sampling with a seed that depends on the request's seed and on ``purpose`` alone."""
    if sampling.is_greedy:
        return sampling
    digest = hashlib.blake2b(f"{sampling.seed}:{purpose}".encode(), digest_size=8).digest()
    return replace(sampling, seed=int.from_bytes(digest, "little"))


def _plain_chunk(request: SpeculationRequest, room: int, is_first: bool) -> int:
    """How many tokens the target alone is asked for at once."""
    if request.streams:
        return 1 if is_first else min(room, STREAM_CHUNK_TOKENS)
    # Log-probabilities may cost a row of logits for every token, which a call has to carry.
    return min(room, STREAM_CHUNK_TOKENS if request.wants_log_probs else PLAIN_CHUNK_TOKENS)
