"""One request on one engine: prefill what is not cached, verify drafts in one pass, or decode token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..acceptance import accept_tokens
from ..sampling import Sampler, Sampling
from ..stopping import StopWords, find_stop
from .engine import Engine
from .prefix_cache import CachedSequence, PrefixCache

PREFILL_CHUNK_TOKENS = 256


class RequestRefused(ValueError):
    """The request asks for something this engine cannot give; the message goes to the client."""


class RequestCancelled(Exception):
    """The client went away."""


@dataclass(frozen=True)
class GenerateRequest:
    """Token ids in, token ids out. ``draft_ids`` are verified, and then the call ends (as in the C++ engine)."""

    input_ids: Sequence[int]
    max_new_tokens: int
    draft_ids: Sequence[int] = ()
    end_id: int | None = None
    stop_words: StopWords = ()
    sampling: Sampling = field(default_factory=Sampling)
    return_logits: bool = False


@dataclass(frozen=True)
class GenerateResult:
    """``new_ids`` without the end id; ``logits`` float32 [len(new_ids), vocab_size] when they were asked for."""

    new_ids: list[int]
    logits: NDArray[np.float32] | None = None


def check_request(engine: Engine, request: GenerateRequest) -> None:
    """Raises RequestRefused, before anything is computed, for a request outside the engine's limits.

    Stricter than the C++ engine, which clips an output length that is too large and logs a warning.
    """
    limits, prompt = engine.limits, len(request.input_ids)
    if prompt == 0:
        raise RequestRefused("input_ids is empty, expected at least one token.")
    granted = limits.max_output_len(prompt)
    if granted < 1:
        longest = limits.max_seq_len - limits.max_draft_len - 1
        raise RequestRefused(f"the input has {prompt} tokens, this engine takes at most {longest}.")
    if not 0 < request.max_new_tokens <= granted + len(request.draft_ids):
        raise RequestRefused(
            f"request_output_len is {request.max_new_tokens}, expected 1 to {granted} after {prompt} input tokens."
        )
    if len(request.draft_ids) > limits.max_draft_len:
        raise RequestRefused(
            f"{len(request.draft_ids)} draft tokens are more than the engine's max_draft_len {limits.max_draft_len}."
        )
    ids = [*request.input_ids, *request.draft_ids]
    if min(ids) < 0 or max(ids) >= limits.vocab_size:
        raise RequestRefused(f"a token id is outside the vocabulary of {limits.vocab_size}.")


def generate(
    engine: Engine,
    prefixes: PrefixCache,
    request: GenerateRequest,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> GenerateResult:
    """Runs a checked request to its end."""
    run = _Run(engine, prefixes, request, is_cancelled)
    run.verify()
    while not run.finished and not request.draft_ids:
        run.decode()
    return GenerateResult(run.new_ids, np.stack(run.logits) if run.logits else None)


class _Run:
    """State of one request: the ids so far, where the output starts, the sequence they are cached in."""

    def __init__(
        self, engine: Engine, prefixes: PrefixCache, request: GenerateRequest, is_cancelled: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._request = request
        self._is_cancelled = is_cancelled
        self._sampler = Sampler(request.sampling)
        self._sequence, self._cached = prefixes.acquire(request.input_ids)
        self._ids = list(request.input_ids)
        self.logits: list[NDArray[np.float32]] = []
        self.finished = False

    @property
    def new_ids(self) -> list[int]:
        return self._ids[len(self._request.input_ids) :]

    def verify(self) -> None:
        """Feeds the rest of the input and all drafts in one pass, and keeps what the target agrees with."""
        drafts = list(self._request.draft_ids)
        fed = [*self._ids[self._cached :], *drafts]
        logits = _feed(self._engine, self._sequence, self._cached, fed, len(drafts) + 1, self._is_cancelled)
        self._append(accept_tokens(drafts, lambda i: self._sampler.choose(logits[i])), logits)

    def decode(self) -> None:
        """One more token."""
        logits = _feed(self._engine, self._sequence, len(self._ids) - 1, self._ids[-1:], 1, self._is_cancelled)
        self._append([self._sampler.choose(logits[0])], logits)

    def _append(self, picked: list[int], logits: NDArray[np.float32]) -> None:
        """Adds tokens up to the end id (left out, as the C++ engine does), a stop word (kept) or the asked length."""
        request, start = self._request, len(self._ids)
        for token, row in zip(picked, logits, strict=False):
            if token == request.end_id or len(self.new_ids) == request.max_new_tokens:
                self.finished = True
                break
            self._ids.append(token)
            if request.return_logits:
                self.logits.append(row.copy())
        stop = find_stop(self._ids, start, request.stop_words)
        if stop is not None:
            del self._ids[stop:]
            del self.logits[len(self.new_ids) :]
        self.finished |= stop is not None or len(self.new_ids) >= request.max_new_tokens


def _feed(
    engine: Engine,
    sequence: CachedSequence,
    past: int,
    tokens: Sequence[int],
    wanted: int,
    is_cancelled: Callable[[], bool],
) -> NDArray[np.float32]:
    """Feeds ``tokens`` behind the first ``past`` of the sequence, in chunks; logits of the last ``wanted`` tokens."""
    logits = []
    for start in range(0, len(tokens), PREFILL_CHUNK_TOKENS):
        if is_cancelled():
            raise RequestCancelled
        chunk = list(tokens[start : start + PREFILL_CHUNK_TOKENS])
        first_wanted = max(0, len(tokens) - wanted - start)
        # A chunk without wanted rows still computes one: ONNX Runtime refuses an empty row list in some kernels.
        rows = list(range(first_wanted, len(chunk))) or [len(chunk) - 1]
        sequence.ids = sequence.ids[: past + start]  # what lies behind is overwritten, even if the pass fails
        out = engine.forward(sequence.cache, chunk, past + start, rows)
        sequence.ids = np.concatenate([sequence.ids, chunk])
        if first_wanted < len(chunk):
            logits.append(out)
    return logits[0] if len(logits) == 1 else np.concatenate(logits)
