"""Draft and target as models of the same Triton server, called through the Python backend's BLS."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import LogProbSource
from .draft_logits import as_sampled
from .draft_rest import DraftRest
from .engine_calls import Draft, DraftFailed, EngineCall, TargetTokens
from .engine_inputs import EngineDialect
from .request_threads import RequestThreads, blocking
from .sampling import Sampler
from .server_log import log_warning

LOGITS, WANTS_LOGITS = "generation_logits", "return_generation_logits"

# A call to an engine whose process has died may never be answered (seen in Triton 24.10), and keeps a place.
DRAFT_LIMIT_S = 30.0
TARGET_LIMIT_S = 300.0


class EngineFailed(RuntimeError):
    """An engine answered with an error, or not at all; the message is the engine's."""


@dataclass(frozen=True)
class EngineModel:
    """One engine as a model of this server; its logits have ``logits_width`` columns, 0 for ``vocab_size``."""

    name: str
    vocab_size: int
    logits_width: int = 0

    @property
    def columns(self) -> int:
        return self.logits_width or self.vocab_size


class TritonEngines:
    """Sends engine calls with NVIDIA's tensor names.

    ``running`` tells how many requests are in flight now, ``on_draft_failure`` is called for every call that the
    draft engine fails.
    """

    def __init__(
        self,
        triton: Any,
        *,
        target: EngineModel,
        draft: EngineModel | None,
        dialect: EngineDialect,
        threads: RequestThreads,
        running: Callable[[], int],
        on_draft_failure: Callable[[], None],
        log_probs: LogProbSource = "none",
    ) -> None:
        self._triton = triton
        self._target = target
        self._draft = draft
        self._dialect = dialect
        self._threads = threads
        self._running = running
        self._log_probs = log_probs
        self._on_draft_failure = on_draft_failure
        self._draft_rest = DraftRest()
        self._told: set[str] = set()  # what the log has been told of the draft engine
        self._kept: dict[tuple[str, str], tuple[Any, Any]] = {}

    def for_request(self) -> TritonEngines:
        """The same engines for one request, which has one call at a time with each of them.

        It keeps one-element tensors while their values stay, for making them takes a tenth of what a round costs
        outside the engines. Two calls at a time must not share one: Triton fills it when it is first sent.
        """
        mine = copy.copy(self)
        mine._kept = {}
        return mine

    async def target(self, call: EngineCall) -> TargetTokens:
        """EngineFailed if the engine refuses, breaks, or has no log-probabilities to tell."""
        if not call.wants_log_probs:
            return TargetTokens(self._new_ids(await self._run(self._target, call)))
        name, switch = {
            "engine": ("output_log_probs", "return_log_probs"),
            "logits": (LOGITS, WANTS_LOGITS),
        }[self._log_probs]
        response = await self._run(self._target, call, name, {switch: np.array([[True]])})
        ids = self._new_ids(response)
        told = self._output(response, name)
        if told is None:
            raise EngineFailed(f"it gave no {name}")
        if name == "output_log_probs":
            return TargetTokens(ids, told.reshape(-1)[: len(ids)].tolist())
        sampler = Sampler(call.sampling, len(call.ids), call.end_id)
        rows = _rows(told, len(ids), self._target.vocab_size).astype(np.float32)
        said = np.concatenate([call.ids, np.array(ids, np.int32)])
        prefixes = [said[: len(call.ids) + index] for index in range(len(ids))]
        return TargetTokens(ids, [sampler.log_probs(*pick)[0] for pick in zip(rows, prefixes, ids, strict=True)])

    async def draft(self, call: EngineCall) -> Draft:
        """Drafted ids; DraftFailed without a draft engine, or when it fails, of which the log tells once."""
        if self._draft is None:
            raise DraftFailed("there is no draft engine")
        if not self._draft_rest.lets_try():
            self._on_draft_failure()
            raise DraftFailed("the draft engine has failed several calls, and is left alone for a while")
        more = {} if call.accept == "tokens" else {WANTS_LOGITS: np.array([[True]])}
        try:
            response = await self._run(self._draft, call, LOGITS if more else None, more)
        except EngineFailed as error:
            self._on_draft_failure()
            self._draft_rest.failed()
            self._tell_once("failure", f"the draft engine fails, the target goes on alone: {error}")
            raise DraftFailed(str(error)) from error
        self._told.discard("failure")
        self._draft_rest.answered()
        ids = self._new_ids(response)[: call.max_new_tokens]
        told = self._output(response, LOGITS) if more and ids else None
        if call.accept == "fast_logits" and told is not None:
            return Draft(ids, told[0, 0], is_handle=True)
        # The draft may have ids that no text has and the target does not know: it would refuse them.
        unknown = next((index for index, token in enumerate(ids) if token >= self._target.vocab_size), len(ids))
        ids = ids[:unknown]
        if told is None:
            self._miss_logits(call)
            return Draft(ids)
        rows = _rows(told, len(ids), self._draft.vocab_size)
        sampler = Sampler(call.sampling, len(call.ids), call.end_id)
        # Milliseconds with a large vocabulary: other requests do not wait for it.
        return Draft(ids, await blocking(partial(as_sampled, rows, sampler, call.ids, ids, self._target.columns)))

    def begin_draft(self, call: EngineCall) -> Awaitable[Draft]:
        return blocking(self._threads.start(self.draft(call)).result)

    def _miss_logits(self, call: EngineCall) -> None:
        """Of an engine that keeps its logits to itself; equality accepts its drafts as well."""
        if call.accept != "tokens":
            self._tell_once("no logits", f"the draft engine gave no {LOGITS}: its drafts are accepted by equality")

    def _tell_once(self, what: str, message: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log_warning(self._triton, message)

    async def _run(
        self,
        model: EngineModel,
        call: EngineCall,
        output: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> Any:
        """The response to one call, with one more ``output`` and ``more`` inputs; EngineFailed if there is none."""
        inputs = {**self._dialect.inputs(call, model.vocab_size, crowded=self._running() > 1), **(more or {})}
        request = self._triton.InferenceRequest(
            model_name=model.name,
            requested_output_names=["output_ids", "sequence_length", *([output] if output else [])],
            inputs=[self._tensor(model, name, value) for name, value in inputs.items()],
        )
        limit_s = DRAFT_LIMIT_S if model is self._draft else TARGET_LIMIT_S
        try:
            response = await blocking(request.exec, limit_s)
        except TimeoutError:
            raise EngineFailed(f"{model.name} has not answered for {limit_s:g} s") from None
        if response.has_error():
            raise EngineFailed(response.error().message())
        return response

    def _tensor(self, model: EngineModel, name: str, value: NDArray[Any]) -> Any:
        if value.size != 1:
            return self._triton.Tensor(name, value)
        kept = self._kept.get((model.name, name))
        if kept is None or kept[0] != (value.item(), value.shape):
            kept = self._kept[model.name, name] = (value.item(), value.shape), self._triton.Tensor(name, value)
        return kept[1]

    def _new_ids(self, response: Any) -> list[int]:
        length = int(self._output(response, "sequence_length").reshape(-1)[0])
        # Every call asks for the input to be left out, and the C++ engine pads behind sequence_length.
        ids: list[int] = self._output(response, "output_ids").reshape(-1)[:length].tolist()
        return ids

    def _output(self, response: Any, name: str) -> Any:
        tensor = self._triton.get_output_tensor_by_name(response, name)
        return None if tensor is None else tensor.as_numpy()


def _rows(logits: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """Rows may be padded behind the last token, columns to a multiple of the engine's ranks."""
    return logits.reshape(-1, logits.shape[-1])[:rows, :columns]
