"""One running request: what it still has to feed, and what becomes of the logits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..acceptance import accept_logits, accept_tokens, count_accepted
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
    ``acceptance_threshold`` instead of uniform draws where that is given. ``return_context_logits`` takes nothing over
    from other requests: what is not fed has no logits. ``streams`` asks for a result as soon as there is a token.
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
    return_log_probs: bool = False
    normalize_log_probs: bool = True
    return_context_logits: bool = False
    streams: bool = False


@dataclass
class RunFigures:
    """How a request ran; times in nanoseconds of the monotonic clock, 0 for what has not happened."""

    reused_tokens: int = 0
    scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True)
class GenerateResult:
    """What was chosen since the last result: ``new_ids`` without the end id, and what was asked for of each.

    ``logits`` are float32 [len(new_ids), vocab_size], ``context_logits`` [len(input_ids), vocab_size], given with the
    first result; ``log_probs`` has one for each new id, ``cum_log_prob`` sums up the whole answer, the end id included.
    """

    new_ids: list[int]
    logits: NDArray[np.float32] | None = None
    context_logits: NDArray[np.float32] | None = None
    log_probs: list[float] | None = None
    cum_log_prob: float | None = None
    figures: RunFigures = field(default_factory=RunFigures)


class RunningSequence:
    """The state of a request on its row: first prompt and drafts are fed, then, without drafts, token by token."""

    def __init__(self, request: GenerateRequest, row: Row, cached_tokens: int) -> None:
        self.request = request
        self.row = row
        self.finished = False
        self.served_step = -1
        self.saw_logits = False  # from then on every piece has some, so what its row holds are numbers
        self._ids = list(request.input_ids)
        self._sampler = Sampler(request.sampling, len(self._ids), request.end_id)
        self._needs_rows = (
            request.return_logits
            or request.return_log_probs
            or request.draft_logits is not None
            or not self._sampler.takes_largest
        )
        self._taken = 0
        self._logits: list[NDArray[np.float32]] = []
        self._context_logits: list[NDArray[np.float32]] = []
        self._log_probs: list[tuple[float, float]] = []  # of each new id, and of what top-k sampling kept
        self._end_log_prob = 0.0
        self._past = cached_tokens
        self._pending = [*self._ids[cached_tokens:], *request.draft_ids]
        # Behind the prompt and each draft: the largest entry of the logits, the logits, and what sampling sees of them.
        self._largest: list[int] = []
        self._rows: list[NDArray[np.float32]] = []
        self._adjusted: dict[int, NDArray[np.float32]] = {}
        self._figures = RunFigures(reused_tokens=cached_tokens, scheduled_ns=time.monotonic_ns())

    @property
    def pending_tokens(self) -> int:
        return len(self._pending)

    @property
    def counted_tokens(self) -> int:
        """What TensorRT-LLM's scheduler counts of it in a step: its whole input until the first token is there."""
        return 1 if self._new_tokens else len(self.request.input_ids) + len(self.request.draft_ids)

    @property
    def _new_tokens(self) -> int:
        return len(self._ids) - len(self.request.input_ids)

    @property
    def has_news(self) -> bool:
        """Whether there are tokens that no result has told of."""
        return self._new_tokens > self._taken

    def next_piece(self, tokens: int) -> Piece:
        """The next ``tokens`` to feed. Logits are wanted from the last token before the drafts on, or of the prompt."""
        unwanted = 0 if self.request.return_context_logits else len(self._ids) - 1 - self._past
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
            self.saw_logits = True
            if self.request.return_context_logits:
                logits, greedy = self._keep_context(piece.past, logits, greedy)
            self._largest += greedy.tolist()
            if self._needs_rows:  # the next pass overwrites them
                self._rows += list(logits.copy() if self._pending or self.request.return_logits else logits)
        if not self._pending:
            self._settle()

    def take_result(self) -> GenerateResult:
        """What was chosen since the last call; what it tells of is not told again."""
        new_ids = self._ids[len(self.request.input_ids) + self._taken :]
        log_probs = cum_log_prob = None
        if self.request.return_log_probs:
            share = 1.0 if self.request.normalize_log_probs else 0.0
            log_probs = [value - share * log_mass for value, log_mass in self._log_probs[self._taken :]]
            cum_log_prob = sum(value for value, _ in self._log_probs) + self._end_log_prob
        result = GenerateResult(
            new_ids,
            np.stack(self._logits) if self._logits else None,
            np.concatenate(self._context_logits) if self._context_logits else None,
            log_probs,
            cum_log_prob,
            self._figures,
        )
        self._taken += len(new_ids)
        self._logits, self._context_logits = [], []
        return result

    def _keep_context(
        self, past: int, logits: NDArray[np.float32], greedy: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Keeps the rows behind tokens of the prompt; the rows from the prompt's last token on are for picking."""
        prompt = len(self.request.input_ids)
        if past < prompt:
            self._context_logits.append(logits[: prompt - past].copy())
        chosen_from = max(0, prompt - 1 - past)
        return logits[chosen_from:], greedy[chosen_from:]

    def _see(self, accepted: int) -> NDArray[np.float32]:
        """What sampling sees of the logits behind ``accepted`` drafts; the rules are applied once."""
        if accepted not in self._adjusted:
            said: Sequence[int] = ()
            if not self.request.sampling.rules.is_neutral:
                said = [*self._ids, *self.request.draft_ids[:accepted]] if accepted else self._ids
            self._adjusted[accepted] = self._sampler.adjust(self._rows[accepted], said)
        return self._adjusted[accepted]

    def _choose(self, accepted: int) -> int:
        """The target's own token behind ``accepted`` drafts; where the logits decide alone, it is known already."""
        return self._largest[accepted] if self._sampler.takes_largest else self._sampler.draw(self._see(accepted))

    def _accept(self) -> list[int]:
        request = self.request
        if request.draft_logits is None:
            return accept_tokens(request.draft_ids, self._choose)
        return accept_logits(
            request.draft_ids,
            request.draft_logits,
            lambda i: self._sampler.distribution_of(self._rows[i] if self._sampler.takes_largest else self._see(i)),
            self._sampler.random,
            request.acceptance_threshold,
        )

    def _settle(self) -> None:
        """Everything is fed: keeps the drafts that are accepted, and goes on behind them."""
        self._append(self._accept())
        self._largest, self._rows, self._adjusted = [], [], {}
        self._past = len(self._ids) - 1
        self._pending = self._ids[-1:]
        self._figures.last_token_ns = time.monotonic_ns()
        self._figures.first_token_ns = self._figures.first_token_ns or self._figures.last_token_ns
        if drafts := self.request.draft_ids:
            self._figures.accepted_tokens = count_accepted(drafts, self._ids[len(self.request.input_ids) :])
            self.finished = True

    def _append(self, picked: list[int]) -> None:
        """Adds tokens up to the end id (left out, as the C++ engine does), a stop word (kept) or the asked length."""
        request, start, prompt = self.request, len(self._ids), len(self.request.input_ids)
        for i, token in enumerate(picked):
            if token == request.end_id or len(self._ids) - prompt == request.max_new_tokens:
                if request.return_log_probs and token == request.end_id:
                    self._end_log_prob, _ = self._sampler.log_probs_of(self._see(i), token)
                self.finished = True
                break
            if request.return_log_probs:
                self._log_probs.append(self._sampler.log_probs_of(self._see(i), token))
            if request.return_logits:
                self._logits.append(self._rows[i])
            self._ids.append(token)
        stop = find_stop(self._ids, start, request.stop_words) if request.stop_words else None
        if stop is not None:
            kept = stop - prompt
            if request.return_logits:
                del self._logits[kept - self._taken :]
            del self._log_probs[kept:]
            del self._ids[stop:]
        self.finished |= stop is not None or len(self._ids) - prompt >= request.max_new_tokens
