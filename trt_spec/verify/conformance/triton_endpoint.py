"""The gRPC side of a probed endpoint: any Triton server with NVIDIA's engine tensors, decoupled or not."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from typing import Any

from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.verify.client import CONNECT_DEADLINE_S, connect, parse_url, reason
from trt_spec.verify.conformance.endpoint import Answer
from trt_spec.verify.conformance.observation import NotApplicable
from trt_spec.verify.tensors import ModelInterface, build_inputs, is_sendable, read_interface

_NEEDED = ({"input_ids", "input_lengths", "request_output_len"}, {"output_ids", "sequence_length"})
_SERVER_FAULTS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
_ABSENT = ("NOT_FOUND", "INVALID_ARGUMENT")
"""What Triton says of a model that it has not; the second with model namespaces (core model_repository_manager.cc). One
that is there and not ready is UNAVAILABLE, as is a server that is busy."""


class TritonEndpoint:
    """Connection to one server; use it as a context manager. One request at a time, each with a deadline.

    Raises EnvironmentMissing when nothing answers, SpecError when the target is no engine model, StepFailed when the
    server stops answering.
    """

    def __init__(self, url: str, *, deadline_s: float) -> None:
        self.url = parse_url(url)
        self._deadline_s = deadline_s
        self._client, self._error = connect(self.url)
        self._interfaces: dict[str, ModelInterface] = {}
        self._decoupled: dict[str, bool] = {}

    def __enter__(self) -> TritonEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check_engine(self) -> str:
        """Checks that the target engine is served, and returns the server's name and version."""
        try:
            metadata = self._client.get_server_metadata(client_timeout=CONNECT_DEADLINE_S)
        except self._error as error:
            raise EnvironmentMissing(
                f"No Triton server answers on {self.url} ({reason(error)}).",
                remedy="Start it with `trtspec serve SPEC`, or give HOST:PORT of the gRPC port of a running one.",
            ) from error
        interface = self.interface(TARGET_MODEL)
        missing = (_NEEDED[0] - interface.inputs.keys()) | (_NEEDED[1] - interface.outputs)
        if missing:
            raise SpecError(
                f"{TARGET_MODEL} on {self.url} has no tensor {', '.join(sorted(missing))}: it is no engine of NVIDIA's "
                "tensorrtllm backend.",
                remedy="The table is about engines that take token ids; the LLM API model takes text.",
            )
        return f"{metadata.name} {metadata.version}"

    def find(self, model: str) -> ModelInterface | None:
        """What a model declares, None where the server has none of that name. StepFailed if it does not tell."""
        try:
            return self.interface(model)
        except _NotServed:
            return None

    def interface(self, model: str) -> ModelInterface:
        if model not in self._interfaces:
            try:
                response = self._client.get_model_config(model, client_timeout=CONNECT_DEADLINE_S)
            except self._error as error:
                failure = _NotServed if _status(error) in _ABSENT else StepFailed
                raise failure(
                    f"{self.url} does not serve {model} ({reason(error)}).",
                    remedy="Prove a server whose repository holds NVIDIA's engine models.",
                ) from error
            self._interfaces[model] = read_interface(response.config)
            self._decoupled[model] = bool(response.config.model_transaction_policy.decoupled)
        return self._interfaces[model]

    def call(self, model: str, values: Mapping[str, Any]) -> Answer:
        interface = self.interface(model)
        unknown = [name for name in values if interface.inputs.get(name) and not is_sendable(interface.inputs[name])]
        if unknown:
            raise NotApplicable(f"{unknown[0]} has the data type {interface.inputs[unknown[0]]}, which cannot be sent")
        tensors = build_inputs(interface, values)
        try:
            if self._decoupled[model]:
                result = self._stream(model, tensors)
            else:
                result = self._client.infer(model, tensors, client_timeout=self._deadline_s)
        except self._error as error:
            return self._refused(error)
        names = [output.name for output in result.get_response().outputs]
        return Answer({name: array for name in names if (array := result.as_numpy(name)) is not None})

    def _stream(self, model: str, tensors: list[Any]) -> Any:
        """The last response with tensors of a decoupled model: without streaming it is the only one."""
        responses: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._client.start_stream(lambda result, error: responses.put((result, error)), stream_timeout=self._deadline_s)
        last, final = None, False
        try:
            self._client.async_stream_infer(model, tensors, enable_empty_final_response=True)
            while not final:
                result, error = responses.get(timeout=self._deadline_s + CONNECT_DEADLINE_S)
                if error is not None:
                    raise error
                response = result.get_response()
                last = result if len(response.outputs) else last
                final = response.parameters["triton_final_response"].bool_param
        except queue.Empty:
            raise _gone(self.url, f"no response in {self._deadline_s:g} s") from None
        finally:
            self._client.stop_stream(cancel_requests=not final)
        if last is None:
            raise _gone(self.url, "an answer without tensors")
        return last

    def _refused(self, error: Exception) -> Answer:
        if _status(error) in _SERVER_FAULTS:
            raise _gone(self.url, reason(error)) from error
        return Answer(refusal=reason(error))


class _NotServed(StepFailed):
    """The server has no model of that name."""


def _status(error: Exception) -> str:
    """The gRPC status of a client's exception, such as NOT_FOUND; empty if it has none."""
    return str(getattr(error, "status", lambda: None)() or "").removeprefix("StatusCode.")


def _gone(url: str, what: str) -> StepFailed:
    return StepFailed(
        f"The server on {url} does not answer any more ({what}).",
        remedy="Its log's last lines say why; a slow one needs a larger --timeout.",
    )
