"""The Triton model of an ONNX engine: requests join the batch of one engine thread, which answers by their senders."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np

from ..stopping import StopWords, unpack_stop_words
from ..triton_request import BadRequest, TensorReader, check_parameters, read_parameters
from .batcher import Batcher, Job, Outcome, RequestCancelled
from .engine import Engine
from .generate import RequestRefused, check_request
from .sequence import GenerateRequest, GenerateResult

READ = frozenset(
    {
        "input_ids",
        "input_lengths",
        "request_output_len",
        "draft_input_ids",
        "draft_logits",
        "draft_acceptance_threshold",
        "end_id",
        "stop_words_list",
        "bad_words_list",
        "temperature",
        "runtime_top_k",
        "runtime_top_p",
        "seed",
        "random_seed",
        "min_tokens",
        "min_length",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "embedding_bias",
        "exclude_input_in_output",
        "streaming",
        "return_generation_logits",
    }
)
"""The inputs that this engine honours."""

MAX_WORD_IDS = 1 << 14


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
        # NVIDIA's templates have no parameter max_num_tokens, it is built into the engines: here it rehearses them.
        kv_tokens, max_num_tokens = (
            int(value) if (value := parameters.get(name, "")) else None
            for name in ("max_tokens_in_paged_kv_cache", "max_num_tokens")
        )
        self._engine = Engine(openable_path(parameters["gpt_model_path"]), kv_tokens, max_num_tokens)
        self._batcher = Batcher(self._engine)
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
        """The engine thread: sleeps while there is nothing to do, and lets requests in between steps."""
        while not self._stopping.is_set():
            jobs = [self._waiting.get()] if self._batcher.is_idle else []
            while not self._waiting.empty():
                jobs.append(self._waiting.get())
            for job in filter(None, jobs):
                self._accept(*job)
            self._batcher.step()
        self._batcher.abort(RequestCancelled())
        while not self._waiting.empty():
            if (job := self._waiting.get()) is not None:
                self._send(job[1], self._failure(RequestCancelled()))

    def _accept(self, request: Any, sender: Any) -> None:
        """A request becomes a job, or is refused; whatever goes wrong stays with it."""
        try:
            check_parameters(request.parameters(), READ)
            parsed, excludes_input = self._parse(TensorReader(request))
        except Exception as error:  # noqa: BLE001 - the thread must outlive any request
            self._send(sender, self._failure(error))
            return

        def deliver(outcome: Outcome) -> None:
            try:
                if isinstance(outcome, Exception):
                    response = self._failure(outcome)
                else:
                    response = self._triton.InferenceResponse(self._outputs(parsed, outcome, excludes_input))
            except Exception as error:  # noqa: BLE001 - shared memory may be full
                response = self._failure(error)
            self._send(sender, response)

        self._batcher.submit(Job(parsed, deliver, request.is_cancelled))

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

    def _failure(self, error: Exception) -> Any:
        """The response that tells the client of ``error``."""
        codes = self._triton.TritonError
        if isinstance(error, BadRequest | RequestRefused):
            return self._error(str(error), codes.INVALID_ARG)
        if isinstance(error, RequestCancelled):
            return self._error("cancelled", codes.CANCELLED)
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
        vocab_size = self._engine.limits.vocab_size
        bias = tensors.array("embedding_bias")
        if bias is not None and bias.size not in (0, vocab_size):
            raise BadRequest(f"embedding_bias has {bias.size} values, expected the vocabulary of {vocab_size}.")
        end_id = tensors.scalar("end_id")
        request = GenerateRequest(
            input_ids=input_ids[:length],
            max_new_tokens=int(tensors.scalar("request_output_len") or 0),
            draft_ids=tensors.ids("draft_input_ids"),
            end_id=None if end_id is None or end_id < 0 else end_id,
            stop_words=_word_ids(tensors, "stop_words_list"),
            sampling=tensors.sampling(
                top_k="runtime_top_k",
                top_p="runtime_top_p",
                bad_words=_word_ids(tensors, "bad_words_list"),
                embedding_bias=None if bias is None or not bias.size else bias.reshape(-1),
            ),
            return_logits=tensors.flag("return_generation_logits"),
            draft_logits=tensors.array("draft_logits"),
            acceptance_threshold=tensors.scalar("draft_acceptance_threshold"),
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


def _word_ids(tensors: TensorReader, name: str) -> StopWords:
    """A packed list of words as token ids."""
    packed = tensors.array(name)
    if packed is None or not packed.size:
        return ()
    if packed.size > MAX_WORD_IDS:
        raise BadRequest(f"{name} has {packed.size} values, expected at most {MAX_WORD_IDS}.")
    try:
        return unpack_stop_words(packed)
    except ValueError as error:
        raise BadRequest(f"{name}: {error}.") from None
