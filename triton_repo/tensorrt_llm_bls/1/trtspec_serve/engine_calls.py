"""What the loop asks of the two engines, and what it gets: token ids and logits, free of Triton."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .sampling import Sampling
from .stopping import StopWords

Accept = Literal["tokens", "logits", "fast_logits"]
"""How the target accepts drafts: where its own pick is the same token; by modified rejection sampling against the
draft's logits; by the same, with logits that go from engine to engine by a handle."""


class Draft(NamedTuple):
    """Proposed ids, and what the target accepts them by; None accepts by equality.

    ``logits`` [len(ids), vocabulary] are those that the ids were sampled from; ``is_handle`` tells that they still wait
    in the draft engine, and what is here is the handle [1, n] that the target fetches them by. It always has to.
    """

    ids: list[int]
    logits: NDArray[Any] | None = None
    is_handle: bool = False

    def part(self, first: int, last: int | None = None) -> Draft:
        """A stretch of it; a handle stands for all of its tokens, and is never cut."""
        if first == 0 and (last is None or last >= len(self.ids)):
            return self
        return Draft(self.ids[first:last], None if self.logits is None else self.logits[first:last])


NO_DRAFT = Draft([])


class EngineCall(NamedTuple):
    """One request to an engine: at most ``max_new_tokens`` behind ``ids`` int32 [n].

    A call to the draft says with ``accept`` which logits it has to bring; ``draft`` is for the target to verify.
    """

    ids: NDArray[np.int32]
    max_new_tokens: int
    sampling: Sampling
    end_id: int | None
    stop_words: StopWords
    draft_ids: Sequence[int] = ()
    draft_logits: NDArray[Any] | None = None
    wants_log_probs: bool = False
    accept: Accept = "tokens"


class TargetTokens(NamedTuple):
    """New ids without the end id, and their log-probabilities if the call wants them."""

    ids: list[int]
    log_probs: Sequence[float] = ()


class DraftFailed(Exception):
    """The draft engine cannot answer; the target alone still can."""


class Engines(Protocol):
    """The two engines; ``draft`` returns new ids, without the end id if the call names one, or raises DraftFailed."""

    async def draft(self, call: EngineCall) -> Draft: ...

    def begin_draft(self, call: EngineCall) -> Awaitable[Draft]:
        """The same, begun at once; the caller goes on meanwhile."""
        ...

    async def target(self, call: EngineCall) -> TargetTokens: ...
