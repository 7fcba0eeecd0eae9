"""One running request: what it still has to feed, and what becomes of the logits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..acceptance import accept_logits, accept_tokens
from ..sampling import Sampler, Sampling
from ..stopping import StopWords, find_stop
from .feed import Piece
from .kv_rows import Row


class LogitsNotFinite(RuntimeError):
    """The engine computed something that is no number; the message names the position."""


@dataclass(frozen=True)
class GenerateRequest:
    """Token ids in, token ids out. ``draft_ids`` are verified, and then the call ends (as in the C++ engine).

    With ``draft_logits`` float32 [len(draft_ids), vocab_size] they are accepted by modified rejection sampling, against
    ``acceptance_threshold`` instead of uniform draws where that is given.
    """

    input_ids: list[int]
    max_new_tokens: int
    draft_ids: list[int] = field(default_factory=list)
    end_id: int | None = None
    stop_words: StopWords = ()
    sampling: Sampling = field(default_factory=Sampling)
    return_logits: bool = False
    draft_logits: NDArray[np.float32] | None = None
    acceptance_threshold: float | None = None


@dataclass(frozen=True)
class GenerateResult:
    """``new_ids`` without the end id; ``logits`` float32 [len(new_ids), vocab_size] when they were asked for."""

    new_ids: list[int]
    logits: NDArray[np.float32] | None = None


class RunningSequence:
    """The state of a request on its row: first prompt and drafts are fed, then, without drafts, token by token."""

    def __init__(self, request: GenerateRequest, row: Row, cached_tokens: int) -> None:
        self.request = request
        self.row = row
        self.finished = False
        self.served_step = -1
        self._ids = list(request.input_ids)
        self._sampler = Sampler(request.sampling, len(self._ids), request.end_id)
        self._keeps_logits = request.return_logits or request.draft_logits is not None
        self._logits: list[NDArray[np.float32]] = []
        self._past = cached_tokens
        self._pending = [*self._ids[cached_tokens:], *request.draft_ids]
        self._picked: list[int] = []
        self._picked_logits: list[NDArray[np.float32]] = []

    @property
    def pending_tokens(self) -> int:
        return len(self._pending)

    @property
    def counted_tokens(self) -> int:
        """What TensorRT-LLM's scheduler counts of it in a step: its whole input until the first token is there."""
        return 1 if self.new_ids else len(self.request.input_ids) + len(self.request.draft_ids)

    @property
    def new_ids(self) -> list[int]:
        return self._ids[len(self.request.input_ids) :]

    def next_piece(self, tokens: int) -> Piece:
        """The next ``tokens`` to feed. Logits are wanted from the last token before the drafts on."""
        unwanted = len(self._ids) - 1 - self._past
        return Piece(self.row.index, self._past, self._pending[:tokens], max(0, tokens - max(0, unwanted)))

    def advance(self, piece: Piece, logits: NDArray[np.float32], greedy: NDArray[np.int64]) -> None:
        """Takes note of a piece that was fed, its logits [piece.wanted, vocab_size] and where each is largest.

        Raises LogitsNotFinite.
        """
        self.row.write(piece.past, piece.tokens)
        self._past += len(piece.tokens)
        del self._pending[: len(piece.tokens)]
        if piece.wanted:
            # numpy counts NaN as the largest, so the largest entry tells of the whole row.
            finite = np.isfinite(logits[np.arange(len(greedy)), greedy])
            if not finite.all():
                position = self._past - len(greedy) + int(finite.argmin())
                raise LogitsNotFinite(f"the logits behind token {position} of the sequence are not finite (NaN)")
            if self.request.draft_logits is None:
                self._pick(logits, greedy)
            if self._keeps_logits:
                self._picked_logits += list(logits.copy())
        if not self._pending:
            self._settle()

    def result(self) -> GenerateResult:
        return GenerateResult(self.new_ids, np.stack(self._logits) if self._logits else None)

    def _pick(self, logits: NDArray[np.float32], greedy: NDArray[np.int64]) -> None:
        """The target's own token behind each accepted draft; where the logits decide alone, it is known already."""
        if self._sampler.takes_largest:
            self._picked += [int(token) for token in greedy]
            return
        for row in logits:
            self._picked.append(self._sampler.choose(row, self._said_before(len(self._picked))))

    def _said_before(self, accepted: int) -> list[int]:
        return [*self._ids, *self.request.draft_ids[:accepted]]

    def _accept(self) -> list[int]:
        request, rows = self.request, self._picked_logits
        if request.draft_logits is None:
            return accept_tokens(request.draft_ids, self._picked.__getitem__)
        return accept_logits(
            request.draft_ids,
            request.draft_logits,
            lambda i: self._sampler.distribution(rows[i], self._said_before(i)),
            self._sampler.random,
            request.acceptance_threshold,
        )

    def _settle(self) -> None:
        """Everything is fed: keeps the drafts that are accepted, and goes on behind them."""
        drafts = self.request.draft_ids
        self._append(self._accept())
        self._picked, self._picked_logits = [], []
        self._past = len(self._ids) - 1
        self._pending = self._ids[-1:]
        self.finished |= bool(drafts)

    def _append(self, picked: list[int]) -> None:
        """Adds tokens up to the end id (left out, as the C++ engine does), a stop word (kept) or the asked length."""
        request, start = self.request, len(self._ids)
        for i, token in enumerate(picked):
            if token == request.end_id or len(self._ids) - len(request.input_ids) == request.max_new_tokens:
                self.finished = True
                break
            self._ids.append(token)
            if request.return_logits:
                self._logits.append(self._picked_logits[i])
        stop = find_stop(self._ids, start, request.stop_words) if request.stop_words else None
        if stop is not None:
            del self._ids[stop:]
            del self._logits[len(self._ids) - len(request.input_ids) :]
        full = len(self._ids) - len(request.input_ids) >= request.max_new_tokens
        self.finished |= stop is not None or full
