"""Draft and target as models of the same Triton server, called through the Python backend's BLS."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .call_tensors import CallTensors
from .contract import LogProbSource
from .draft_logits import as_sampled
from .draft_rest import DraftRest
from .engine_calls import Draft, DraftFailed, EngineCall, TargetTokens
from .engine_inputs import EngineDialect
from .request_threads import RequestThreads, blocking
from .sampling import Sampler
from .server_log import log_warning

OUTPUTS = ["output_ids", "sequence_length"]
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

    ``requests`` may be in flight, ``running`` tells how many are now. ``on_draft_failure`` is called for every call
    that the draft engine fails.
    """

    def __init__(
        self,
        triton: Any,
        *,
        target: EngineModel,
        draft: EngineModel | None,
        dialect: EngineDialect,
        threads: RequestThreads,
        requests: int,
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
        self._draft_rest = DraftRest(requests)
        self._told: set[str] = set()  # what the log has been told of the draft engine
        self._tensors = CallTensors(triton, dialect)

    def for_request(self) -> TritonEngines:
        """The same engines for one request, which has one call at a time with each of them."""
        mine = copy.copy(self)
        mine._tensors = CallTensors(self._triton, self._dialect)
        return mine

    async def target(self, call: EngineCall) -> TargetTokens:
        """EngineFailed if the engine refuses, breaks, or has no log-probabilities to tell."""
        if not call.wants_log_probs:
            return TargetTokens(_new_ids(_outputs(await self._send(self._target, call))))
        name, switch = {
            "engine": ("output_log_probs", "return_log_probs"),
            "logits": (LOGITS, WANTS_LOGITS),
        }[self._log_probs]
        outputs = _outputs(await self._send(self._target, call, name, switch))
        ids, told = _new_ids(outputs), outputs.get(name)
        if told is None:
            raise EngineFailed(f"it gave no {name}")
        told = told.as_numpy()
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
        wants_logits = call.accept != "tokens"
        try:
            outputs = _outputs(await self._send(self._draft, call, *((LOGITS, WANTS_LOGITS) if wants_logits else ())))
        except EngineFailed as error:
            self._tensors.forget_text()
            self._on_draft_failure()
            self._draft_rest.failed()
            self._tell_once("failure", f"the draft engine fails, the target goes on alone: {error}")
            raise DraftFailed(str(error)) from error
        self._told.discard("failure")
        self._draft_rest.answered()
        ids = _new_ids(outputs)[: call.max_new_tokens]
        logits = outputs.get(LOGITS) if wants_logits and ids else None
        if call.accept == "fast_logits" and logits is not None:
            return Draft(ids, logits.as_numpy()[0, 0], is_handle=True)
        # The draft may have ids that no text has and the target does not know: it would refuse them.
        unknown = next((index for index, token in enumerate(ids) if token >= self._target.vocab_size), len(ids))
        ids = ids[:unknown]
        if logits is None:
            self._miss_logits(call)
            return Draft(ids)
        rows = _rows(logits.as_numpy(), len(ids), self._draft.vocab_size)
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

    def _send(
        self, model: EngineModel, call: EngineCall, output: str | None = None, switch: str | None = None
    ) -> Awaitable[Any]:
        """The response to one call; EngineFailed if there is none in time.

        ``switch`` is the input that turns on one more ``output``.
        """
        request = self._triton.InferenceRequest(
            model_name=model.name,
            requested_output_names=[*OUTPUTS, output] if output else OUTPUTS,
            inputs=self._tensors.of(
                model.name, call, vocab_size=model.vocab_size, crowded=self._running() > 1, switch=switch
            ),
        )
        if model is not self._draft:
            return blocking(request.exec, TARGET_LIMIT_S, lambda: _late(model, TARGET_LIMIT_S))
        watched = self._draft_rest.watch(request.exec)

        def give_up() -> EngineFailed:
            watched.give_up()
            return _late(model, DRAFT_LIMIT_S)

        return blocking(watched, DRAFT_LIMIT_S, give_up)


def _late(model: EngineModel, limit_s: float) -> EngineFailed:
    return EngineFailed(f"{model.name} has not answered for {limit_s:g} s")


def _outputs(response: Any) -> dict[str, Any]:
    """Tensors by name; EngineFailed if the response is an error."""
    if response.has_error():
        raise EngineFailed(response.error().message())
    return {tensor.name(): tensor for tensor in response.output_tensors()}


def _new_ids(outputs: Mapping[str, Any]) -> list[int]:
    # Every call asks for the input to be left out, and the C++ engine pads behind sequence_length.
    length = outputs["sequence_length"].as_numpy().item(0)
    ids: list[int] = outputs["output_ids"].as_numpy().reshape(-1)[:length].tolist()
    return ids


def _rows(logits: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """Rows may be padded behind the last token, columns to a multiple of the engine's ranks."""
    return logits.reshape(-1, logits.shape[-1])[:rows, :columns]
