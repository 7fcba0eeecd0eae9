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
"""Tokens a call when the target streams alone, after a first call of one token."""

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


@dataclass
class RoundCounts:
    """Drafted and accepted tokens of every round, one entry a round."""

    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class EngineCall:
    """One request to an engine: at most ``max_new_tokens`` behind ``ids``."""

    ids: Sequence[int]
    max_new_tokens: int
    sampling: Sampling
    end_id: int | None
    stop_words: StopWords
    draft_ids: Sequence[int] = ()


class DraftFailed(Exception):
    """The draft engine cannot answer; the target alone still can."""


class Engines(Protocol):
    """The two engines; both return new ids only, without the end id. ``draft`` may raise DraftFailed."""

    async def draft(self, call: EngineCall) -> list[int]: ...

    async def target(self, call: EngineCall) -> list[int]: ...


async def speculate(engines: Engines, request: SpeculationRequest, counts: RoundCounts) -> AsyncIterator[list[int]]:
    """Yields the new ids of each round: drafted by the one engine, verified by the other, until a stop.

    A round of n drafted tokens yields 1 to n + 1 ids, every one the target's own pick. Ids of ``end_ids`` are left out.
    A draft engine that fails is not asked again by this request.
    """
    ids = list(request.prompt_ids)
    limit = len(ids) + request.max_tokens
    end_id, *more_end_ids = request.end_ids or (None,)
    # An engine takes one end id; the model's others stop it as stop words.
    stop_words = (*request.stop_words, *((other,) for other in more_end_ids if other is not None))

    def call(role: str, max_new_tokens: int, draft_ids: Sequence[int] = ()) -> EngineCall:
        # A seed used twice would correlate the draws of different rounds, and draft with target.
        sampling = fresh_seed(request.sampling, f"{role}:{len(ids)}")
        return EngineCall(ids, max_new_tokens, sampling, end_id, stop_words, draft_ids)

    speculates = request.draft_len > 0
    while len(ids) < limit:
        room = limit - len(ids)
        # Who waits for the first word does not wait for the draft to read the prompt as well.
        drafts_now = speculates and not (request.streams and room == request.max_tokens)
        draft_len = min(request.draft_len, room - 1) if drafts_now else 0
        try:
            draft_ids = await engines.draft(call("draft", draft_len)) if draft_len else []
        except DraftFailed:
            speculates, draft_ids = False, []
        asked = len(draft_ids) + 1 if speculates else _plain_chunk(request, room)
        new_ids = await engines.target(call("target", asked, draft_ids))
        accepted = count_accepted(draft_ids, new_ids)
        if speculates:
            counts.drafted.append(len(draft_ids))
            counts.accepted.append(accepted)
        # The engine leaves its end id out: an answer shorter than asked that no rejection explains has ended. (It
        # verifies all drafts or refuses the call; only chunked context, which is off, would drop some silently.)
        ended = len(new_ids) < asked and (accepted == len(new_ids) or not draft_ids)
        stop = find_stop([*ids, *new_ids], len(ids), stop_words)
        if stop is not None:
            ended = True
            new_ids = new_ids[: stop - len(ids)]
        if new_ids and new_ids[-1] in request.end_ids:
            ended = True
            new_ids = new_ids[:-1]
        ids.extend(new_ids)
        yield new_ids
        if ended:
            return


def fresh_seed(sampling: Sampling, purpose: str) -> Sampling:
    """The same sampling with a seed that depends on the request's seed and on ``purpose`` alone."""
    if sampling.is_greedy:
        return sampling
    digest = hashlib.blake2b(f"{sampling.seed}:{purpose}".encode(), digest_size=8).digest()
    return replace(sampling, seed=int.from_bytes(digest, "little"))


def _plain_chunk(request: SpeculationRequest, room: int) -> int:
    """How many tokens the target alone is asked for at once."""
    if not request.streams:
        return min(room, PLAIN_CHUNK_TOKENS)
    return 1 if room == request.max_tokens else min(room, STREAM_CHUNK_TOKENS)
