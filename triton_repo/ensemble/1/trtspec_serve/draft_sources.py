"""Who drafts for one answer: its draft model, which may run ahead of the target, or n-gram lookup."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from .engine_calls import NO_DRAFT, Draft, Engines
from .ngram import NgramIndex
from .token_answer import TokenAnswer


class DraftSource(Protocol):
    """Proposes what comes next in an answer."""

    async def propose(self, length: int) -> Draft: ...


class NgramDrafts:
    """What followed the last tokens when they stood there before; the answer is read when somebody asks."""

    def __init__(self, answer: TokenAnswer) -> None:
        self._answer = answer
        self._index = NgramIndex()
        self._read = 0

    @property
    def has_match(self) -> bool:
        return self._caught_up().has_match

    async def propose(self, length: int) -> Draft:
        return Draft(self._caught_up().propose(length))

    def _caught_up(self) -> NgramIndex:
        ids = self._answer.ids
        self._index.extend(ids[self._read :])
        self._read = len(ids)
        return self._index


class ModelDrafts:
    """The draft model; it may go on behind a draft that the target has yet to verify (PEARL, arXiv 2408.11850).

    A call that runs ahead guesses the target's own token first. If the draft is accepted whole and the guess is right,
    what follows it is the next draft, otherwise it is dropped. It always ends before the answer's next draft begins.
    """

    def __init__(self, engines: Engines, answer: TokenAnswer) -> None:
        self._engines = engines
        self._answer = answer
        self._known = 0
        self._begin, self._draft = 0, NO_DRAFT  # what was proposed last, and where in the answer
        self._ahead: Awaitable[Draft] | None = None

    @property
    def cold_tokens(self) -> int:
        """Tokens of prompt and answer whose keys and values the draft engine has yet to compute."""
        return len(self._answer.ids) - self._known

    async def propose(self, length: int) -> Draft:
        """Up to ``length`` tokens; raises DraftFailed."""
        draft = await self._take_ahead()
        if not draft.ids:
            draft = await self._engines.draft(self._answer.draft_call(length))
        self._begin, self._draft = len(self._answer.ids), draft.part(0, length)
        return self._draft

    def go_ahead(self, length: int) -> None:
        """Starts the next draft behind the one just proposed: the target's own token, then ``length`` more."""
        call = self._answer.draft_call(length + 1, behind=self._draft.ids)
        self._ahead = self._engines.begin_draft(call)

    def verified(self, accepted: int) -> None:
        """How much of the last proposal becomes part of the answer."""
        # The last token of a draft is chosen, but only a call that goes on behind it computes its keys and values.
        computed = len(self._draft.ids) - (self._ahead is None)
        self._known = self._begin + min(accepted, max(0, computed))

    async def _take_ahead(self) -> Draft:
        """What the call ahead drafted behind the answer as it has become; nothing if it guessed wrong."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return NO_DRAFT
        draft = await ahead
        is_right = bool(draft.ids) and self._answer.ids[self._begin :] == [*self._draft.ids, draft.ids[0]]
        return draft.part(1) if is_right else NO_DRAFT
