"""The Triton model of an ONNX engine: requests queue up for one engine thread, which answers through their senders."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np

from ..stopping import unpack_stop_words
from ..triton_request import BadRequest, TensorReader, check_parameters, read_parameters
from .engine import Engine
from .generate import GenerateRequest, GenerateResult, RequestCancelled, RequestRefused, check_request, generate
from .prefix_cache import PrefixCache

READ = frozenset(
    {
        "input_ids",
        "input_lengths",
        "request_output_len",
        "draft_input_ids",
        "end_id",
        "stop_words_list",
        "temperature",
        "runtime_top_k",
        "runtime_top_p",
        "seed",
        "random_seed",
        "exclude_input_in_output",
        "streaming",
        "return_generation_logits",
    }
)
"""The inputs that this engine honours."""

MAX_STOP_WORD_IDS = 1 << 14


def openable_path(path: str) -> Path:
    """``path`` as this process can open it: Python inside Triton knows only ASCII names.

    Others are written relative to the working directory, which is the workspace that holds the engines.
    """
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return Path(os.fsdecode(os.path.relpath(path.encode("utf-8"), os.fsencode(Path.cwd()))))
    return Path(path)


class TritonPythonModel:
    """Entry point of the Python backend; one instance, one engine, one thread that runs it."""

    def initialize(self, args: dict[str, str]) -> None:
        import triton_python_backend_utils as triton

        self._triton = triton
        _, parameters = read_parameters(args)
        self._excludes_input = parameters.get("exclude_input_in_output", "false").lower() == "true"
        self._engine = Engine(openable_path(parameters["gpt_model_path"]))
        self._prefixes = PrefixCache(self._engine, self._engine.limits.max_batch_size)
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._waiting.put((request, request.get_response_sender()))

    def finalize(self) -> None:
        """Requests still waiting or running are answered with an error: a stopping server must not take minutes."""
        self._stopping.set()
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            request, sender = job
            self._send(sender, self._answer(request))

    def _send(self, sender: Any, response: Any) -> None:
        """An answer that cannot be sent (shared memory is full) becomes an error: the thread serves others too."""
        final = self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        try:
            sender.send(response, flags=final)
        except Exception as error:  # noqa: BLE001 - the thread must outlive any request
            self._triton.Logger.log_error(f"an answer could not be sent: {error!r}")
            try:
                sender.send(self._error(f"the answer could not be sent: {error}"), flags=final)
            except Exception as again:  # noqa: BLE001 - nothing is left to try
                self._triton.Logger.log_error(f"nor could the error: {again!r}")

    def _answer(self, request: Any) -> Any:
        """The response to one request; whatever goes wrong stays with that request."""
        codes = self._triton.TritonError
        try:
            check_parameters(request.parameters(), READ)
            parsed, excludes_input = self._parse(TensorReader(request))
            result = generate(
                self._engine, self._prefixes, parsed, lambda: self._stopping.is_set() or request.is_cancelled()
            )
            return self._triton.InferenceResponse(self._outputs(parsed, result, excludes_input))
        except (BadRequest, RequestRefused) as error:
            return self._error(str(error), codes.INVALID_ARG)
        except RequestCancelled:
            return self._error("cancelled", codes.CANCELLED)
        except Exception as error:  # noqa: BLE001 - the thread must outlive any request
            self._triton.Logger.log_error(f"engine failure: {error!r}")
            return self._error(f"the engine failed: {error}")

    def _error(self, message: str, code: Any = None) -> Any:
        triton = self._triton
        code = triton.TritonError.INTERNAL if code is None else code
        return triton.InferenceResponse(error=triton.TritonError(message, code))

    def _parse(self, tensors: TensorReader) -> tuple[GenerateRequest, bool]:
        tensors.check_supported(READ)
        if tensors.flag("streaming"):
            raise BadRequest("streaming is not possible on this model, which is not decoupled; stream from ensemble.")
        input_ids = tensors.ids("input_ids")
        length = tensors.scalar("input_lengths")
        if length is None or not 0 <= length <= len(input_ids):
            raise BadRequest(f"input_lengths is {length}, but input_ids has {len(input_ids)} tokens.")
        stop_words = tensors.array("stop_words_list")
        if stop_words is not None and stop_words.size > MAX_STOP_WORD_IDS:
            raise BadRequest(f"stop_words_list has {stop_words.size} values, expected at most {MAX_STOP_WORD_IDS}.")
        try:
            stops = () if stop_words is None else unpack_stop_words(stop_words)
        except ValueError as error:
            raise BadRequest(f"{error}.") from None
        end_id = tensors.scalar("end_id")
        request = GenerateRequest(
            input_ids=input_ids[:length],
            max_new_tokens=int(tensors.scalar("request_output_len") or 0),
            draft_ids=tensors.ids("draft_input_ids"),
            end_id=None if end_id is None or end_id < 0 else end_id,
            stop_words=stops,
            sampling=tensors.sampling(top_k="runtime_top_k", top_p="runtime_top_p"),
            return_logits=tensors.flag("return_generation_logits"),
        )
        check_request(self._engine, request)
        excludes = tensors.scalar("exclude_input_in_output")
        return request, self._excludes_input if excludes is None else bool(excludes)

    def _outputs(self, request: GenerateRequest, result: GenerateResult, excludes_input: bool) -> list[Any]:
        """output_ids [1, 1, n] and sequence_length [1, 1]; generation_logits [1, 1, new, vocab] if asked for."""
        tensor = self._triton.Tensor
        ids = result.new_ids if excludes_input else [*request.input_ids, *result.new_ids]
        outputs = [
            tensor("output_ids", np.array([[ids]], np.int32).reshape(1, 1, len(ids))),
            tensor("sequence_length", np.array([[len(ids)]], np.int32)),
        ]
        if request.return_logits:
            vocab_size = self._engine.limits.vocab_size
            logits = result.logits if result.logits is not None else np.empty((0, vocab_size), np.float32)
            outputs.append(tensor("generation_logits", logits.reshape(1, 1, -1, vocab_size)))
        return outputs
