"""What a request may grow to in each engine's cache, and what becomes of one that is larger than a whole cache.

An engine would fail it in the middle of its answer, when the cache is full.
"""

from __future__ import annotations

from dataclasses import replace

from .admission import CacheTokens
from .drafting import Source
from .token_answer import SpeculationRequest
from .triton_request import BadRequest


def fit_cache(
    request: SpeculationRequest, sources: frozenset[Source], cache: CacheTokens | None
) -> tuple[SpeculationRequest, frozenset[Source], CacheTokens]:
    """The request as its caches can hold it, who may draft for it, and what it may grow to, the last drafts included.

    Where drafts are too much it goes without: without the draft model if only that one's cache is too small. BadRequest
    if the target's cache is too small for the answer alone. ``cache`` None bounds nothing.
    """
    prompt = len(request.prompt_ids)
    plain = prompt + request.max_tokens
    drafted = plain + request.draft_len
    if cache is not None:
        if plain > cache.target:
            raise BadRequest(
                f"the prompt has {prompt} tokens and max_tokens is {request.max_tokens}: the target engine's KV cache "
                f"holds {cache.target} tokens, this request may need {plain}. Shorten one of them, or deploy with a "
                "larger cache."
            )
        if drafted > cache.draft:
            sources -= {"model"}
        if drafted > cache.target or not sources:
            request, drafted = replace(request, draft_len=0), plain
    return request, sources, CacheTokens(drafted, drafted if "model" in sources and request.draft_len else 0)
