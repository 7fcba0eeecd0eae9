"""Draft and target as models of the same Triton server, called through the Python backend's BLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .speculate import DraftFailed, EngineCall
from .stopping import pack_stop_words


class EngineFailed(RuntimeError):
    """An engine answered with an error, or not at all; the message is the engine's."""


class TritonEngines:
    """Sends engine calls with NVIDIA's tensor names; ``seed_name`` differs between template versions.

    ``on_draft_failure`` is called for every call that the draft engine fails.
    """

    def __init__(
        self, triton: Any, *, target: str, draft: str | None, seed_name: str, on_draft_failure: Callable[[], None]
    ) -> None:
        self._triton = triton
        self._target = target
        self._draft = draft
        self._seed_name = seed_name
        self._on_draft_failure = on_draft_failure
        self._draft_failed = False

    async def target(self, call: EngineCall) -> list[int]:
        return await self._run(self._target, call)

    async def draft(self, call: EngineCall) -> list[int]:
        """Drafted ids; DraftFailed without a draft engine, or when it fails, of which the log tells once."""
        if self._draft is None:
            raise DraftFailed("there is no draft engine")
        try:
            drafted = await self._run(self._draft, call)
        except EngineFailed as error:
            self._on_draft_failure()
            if not self._draft_failed:
                self._triton.Logger.log_warn(f"the draft engine fails, the target goes on alone: {error}")
            self._draft_failed = True
            raise DraftFailed(str(error)) from error
        self._draft_failed = False
        return drafted[: call.max_new_tokens]

    async def _run(self, model: str, call: EngineCall) -> list[int]:
        """The new ids of one call; EngineFailed if the engine refuses or breaks."""
        request = self._triton.InferenceRequest(
            model_name=model,
            requested_output_names=["output_ids", "sequence_length"],
            inputs=self._inputs(call),
        )
        response = await request.async_exec()
        if response.has_error():
            raise EngineFailed(response.error().message())
        ids = self._output(response, "output_ids").reshape(-1)
        length = int(self._output(response, "sequence_length").reshape(-1)[0])
        # Every call asks for the input to be left out, and the C++ engine pads behind sequence_length.
        return [int(token) for token in ids[:length]]

    def _output(self, response: Any, name: str) -> Any:
        return self._triton.get_output_tensor_by_name(response, name).as_numpy()

    def _inputs(self, call: EngineCall) -> list[Any]:
        values: dict[str, Any] = {
            "input_ids": np.array([call.ids], np.int32),
            "input_lengths": np.array([[len(call.ids)]], np.int32),
            "request_output_len": np.array([[call.max_new_tokens]], np.int32),
            "exclude_input_in_output": np.array([[True]]),
            "streaming": np.array([[False]]),
        }
        if call.draft_ids:
            values["draft_input_ids"] = np.array([call.draft_ids], np.int32)
        if call.end_id is not None:
            values["end_id"] = values["pad_id"] = np.array([[call.end_id]], np.int32)
        if call.stop_words:
            values["stop_words_list"] = pack_stop_words(call.stop_words)[None]
        sampling = call.sampling
        if sampling.is_greedy:
            values["runtime_top_k"] = np.array([[1]], np.int32)
        else:
            values["temperature"] = np.array([[sampling.temperature]], np.float32)
            values["runtime_top_k"] = np.array([[sampling.top_k]], np.int32)
            values["runtime_top_p"] = np.array([[sampling.top_p]], np.float32)
            values[self._seed_name] = np.array([[sampling.seed]], np.uint64)
        return [self._triton.Tensor(name, value) for name, value in values.items()]
