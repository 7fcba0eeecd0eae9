"""Draft-target speculative decoding of one request: the loop, free of Triton and of text."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .acceptance import count_accepted
from .draft_logits import resolve_accept
from .drafting import DraftPolicy
from .engine_calls import Engines
from .rounds import RoundCounts, Rounds, Surroundings, fixed_length
from .token_answer import SpeculationRequest, TokenAnswer

ALONE = Surroundings()


async def speculate(
    engines: Engines,
    request: SpeculationRequest,
    counts: RoundCounts,
    policy: DraftPolicy | None = None,
    around: Surroundings = ALONE,
) -> AsyncIterator[list[int]]:
    """Yields the new ids of each round: drafted by one source, verified by the target, until a stop.

    A round of n drafted tokens yields 1 to n + 1 ids, every one distributed as the target's own pick. Ids of
    ``end_ids`` are left out. ``policy`` plans the rounds; None drafts ``draft_len`` tokens of the model in each. A
    draft engine that fails is not asked again by this request.
    """
    answer = TokenAnswer(request, resolve_accept(around.accept, request))
    rounds = Rounds(engines, request, answer, counts, policy or fixed_length(request, request.draft_len), around)
    while answer.room_tokens > 0:
        draft = await rounds.propose()
        if not draft.is_handle:  # logits that wait in the draft engine have to be fetched, whoever has left
            around.check()
        rounds.go_ahead()
        asked = rounds.asked_tokens
        told = await engines.target(answer.target_call(asked, draft))
        accepted = count_accepted(draft.ids, told.ids)
        rounds.settle(accepted, len(told.ids))
        around.check()
        # The engine leaves its end id out: an answer shorter than asked that no rejection explains has ended. (It
        # verifies all drafts or refuses the call; only chunked context, which is off, would drop some silently.)
        ended = len(told.ids) < asked and (accepted == len(told.ids) or not draft.ids)
        new_ids, stopped = answer.extend(told.ids)
        counts.log_probs.extend(told.log_probs[: len(new_ids)])
        yield new_ids
        if ended or stopped:
            return
