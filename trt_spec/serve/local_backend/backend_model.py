"""The Triton model of an ONNX engine: requests join the batch of one engine thread, which answers by their senders."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

from ..triton_request import BadRequest, TensorReader, check_parameters, read_parameters
from .batcher import Batcher, Job, Outcome, RequestCancelled
from .engine import Engine
from .engine_outputs import OutputDialect
from .engine_request import READ, EngineOptions, EngineRequest, read_engine_request
from .reply import Reply
from .sequence import GenerateResult


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
        config, parameters = read_parameters(args)
        decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled", False))
        self._options = EngineOptions.from_parameters(parameters, decoupled=decoupled)
        # NVIDIA's templates have no parameter max_num_tokens, it is built into the engines: here it rehearses them.
        kv_tokens, max_num_tokens = (
            int(value) if (value := parameters.get(name, "")) else None
            for name in ("max_tokens_in_paged_kv_cache", "max_num_tokens")
        )
        self._engine = Engine(openable_path(parameters["gpt_model_path"]), kv_tokens, max_num_tokens)
        self._dialect = OutputDialect(config["output"], self._engine.limits.vocab_size)
        self._batcher = Batcher(self._engine)
        self._jobs_by_id: dict[str, tuple[Reply, list[Job]]] = {}
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._waiting.put((request, request.get_response_sender(), time.monotonic_ns()))

    def finalize(self) -> None:
        """Requests still waiting or running are answered with an error: a stopping server must not take minutes."""
        self._stopping.set()
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        """The engine thread: sleeps while there is nothing to do, and lets requests in between steps.

        A step that fails as a whole ends the requests it ran, not the thread.
        """
        while not self._stopping.is_set():
            jobs = [self._waiting.get()] if self._batcher.is_idle else []
            while not self._waiting.empty():
                jobs.append(self._waiting.get())
            for job in filter(None, jobs):
                self._accept(*job)
            try:
                self._batcher.step()
            except Exception as error:  # noqa: BLE001 - the thread must outlive any request
                self._batcher.abort(error)
        self._batcher.abort(RequestCancelled())
        while not self._waiting.empty():
            if (job := self._waiting.get()) is not None:
                Reply(self._triton, job[1]).fail(RequestCancelled())

    def _accept(self, request: Any, sender: Any, arrival_ns: int) -> None:
        """A request becomes a job for each of its sequences, or is refused; whatever goes wrong stays with it."""
        try:
            check_parameters(request.parameters(), READ)
            tensors, request_id = TensorReader(request), str(request.request_id())
            if tensors.flag("stop"):
                self._stop(request_id)
                Reply(self._triton, sender).last(dict)
                return
            asked = read_engine_request(tensors, self._engine, self._options)
        except Exception as error:  # noqa: BLE001 - the thread must outlive any request
            Reply(self._triton, sender).fail(error)
            return
        reply = Reply(self._triton, sender, len(asked.sequences))
        jobs = [self._job(request, request_id, asked, i, reply, arrival_ns) for i in range(len(asked.sequences))]
        if request_id:  # of two requests with one id, a ``stop`` means the later one, as in C++
            self._jobs_by_id[request_id] = reply, jobs
        for job in jobs:
            self._batcher.submit(job)

    def _job(
        self, request: Any, request_id: str, asked: EngineRequest, index: int, reply: Reply, arrival_ns: int
    ) -> Job:
        def outputs(result: GenerateResult, *, is_last: bool) -> dict[str, Any]:
            return self._dialect.outputs(asked, index, result, arrival_ns=arrival_ns, is_last=is_last)

        def deliver_part(result: GenerateResult) -> None:
            reply.part(lambda: outputs(result, is_last=False))

        def deliver(outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                reply.fail(outcome)
            else:
                reply.last(lambda: outputs(outcome, is_last=True))
            if reply.is_over:
                self._forget(request_id, reply)

        def is_cancelled() -> bool:
            return reply.is_over or bool(request.is_cancelled())

        return Job(asked.sequences[index], deliver, is_cancelled, deliver_part)

    def _forget(self, request_id: str, reply: Reply) -> None:
        if request_id in self._jobs_by_id and self._jobs_by_id[request_id][0] is reply:
            del self._jobs_by_id[request_id]

    def _stop(self, request_id: str) -> None:
        """Ends the request of that id with what it has; unknown ones may have ended already."""
        if not request_id:
            raise BadRequest("stop is true, but the request has no id: it stops the request of its own id.")
        _, jobs = self._jobs_by_id.pop(request_id, (None, []))
        for job in jobs:
            self._batcher.stop(job)
