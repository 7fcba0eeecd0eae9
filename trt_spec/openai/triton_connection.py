"""The one connection to Triton: many answers at once over gRPC, each a stream of its own that can be cancelled."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

from trt_spec.openai.api_error import SERVER, ApiError, bad_request, busy, unavailable
from trt_spec.openai.wire import Piece, build_request, read_piece
from trt_spec.serve.contract import (
    CANCELLED,
    ORCHESTRATOR_FAILED,
    QUEUE_FULL,
    SERVER_STOPPING,
    STREAMING_MODEL,
    TARGET_FAILED,
)

_LOOPBACK = re.compile(r"^(localhost|127\.|\[?::1\]?)")
_PROBE_TIMEOUT_S = 5.0
# An error in a stream is a text without a code. (The metadata triton_grpc_error gives one, but Triton 24.10 aborts when
# such streams fail and are cancelled at once: measured.) So it is told by what the orchestrator says; all else is a
# fault of the request.
_BUSY = re.compile(rf"{QUEUE_FULL}|Exceeds maximum queue size", re.IGNORECASE)
_AWAY = re.compile(rf"^({SERVER_STOPPING}|{CANCELLED})|is not (found|ready)|unloaded", re.IGNORECASE)
_FAILED = re.compile(rf"^({TARGET_FAILED}|{ORCHESTRATOR_FAILED})|^(Stub|Failed to process)", re.IGNORECASE)
_ANSWERS = "Try again; the server's log says more."


@dataclass(frozen=True)
class Limits:
    """What the deployment takes: lengths in tokens, and requests."""

    max_input_len: int
    max_output_len: int
    max_seq_len: int
    max_draft_len: int
    max_inflight_requests: int
    max_queue_requests: int

    @property
    def max_requests(self) -> int:
        """That run or wait at once."""
        return self.max_inflight_requests + self.max_queue_requests

    def room(self, prompt_tokens: int) -> int:
        """Tokens that an answer may have behind such a prompt."""
        return min(self.max_output_len, self.max_seq_len - self.max_draft_len - prompt_tokens)


class TritonConnection:
    """Speaks to the streaming orchestrator on ``address``; make it inside the event loop that uses it.

    The server need not be there yet, and may restart: the channel connects again by itself.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        if _LOOPBACK.match(address):
            options.append(("grpc.enable_http_proxy", 0))  # http_proxy of the environment is not meant for this
        self.address = address
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._limits: Limits | None = None
        self._reading: asyncio.Task[Any] | None = None

    async def close(self) -> None:
        await self._channel.close()

    async def is_ready(self) -> bool:
        """Whether the server answers and serves the orchestrator."""
        request = service_pb2.ModelReadyRequest(name=STREAMING_MODEL)
        try:
            return bool((await self._stub.ModelReady(request, timeout=_PROBE_TIMEOUT_S)).ready)
        except grpc.aio.AioRpcError:
            return False

    async def limits(self) -> Limits:
        """The limits of the deployment, read once and again after the server was away."""
        if self._limits is None:
            if self._reading is None or self._reading.done():  # those who come meanwhile share the one call
                self._reading = asyncio.create_task(self._read_config())
            try:
                response = await asyncio.shield(self._reading)
                self._limits = _read_limits(response.config.parameters)
            except grpc.aio.AioRpcError as error:
                raise await self._explain(error) from None
        return self._limits

    async def _read_config(self) -> Any:
        request = service_pb2.ModelConfigRequest(name=STREAMING_MODEL)
        return await self._stub.ModelConfig(request, timeout=_PROBE_TIMEOUT_S)

    async def generate(self, request_id: str, values: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
        """The pieces of one answer; closing the iterator early cancels the work in Triton."""
        call = self._stub.ModelStreamInfer(timeout=self._timeout_s)
        try:
            await call.write(build_request(service_pb2, request_id, values))
            await call.done_writing()
            while (message := await call.read()) is not grpc.aio.EOF:
                if message.error_message:
                    await call.read()  # the end: a stream that is over must not be cancelled as well
                    raise self._explain_words(message.error_message)
                piece = read_piece(message.infer_response)
                yield piece
                if piece.is_final:
                    await call.read()
                    return
            raise await self._explain(grpc.aio.AioRpcError(await call.code(), (), (), await call.details()))
        except grpc.aio.AioRpcError as error:
            raise await self._explain(error) from None
        except asyncio.InvalidStateError:  # the call ended before all was sent
            raise await self._explain(grpc.aio.AioRpcError(await call.code(), (), (), await call.details())) from None
        finally:
            if not call.done():
                call.cancel()

    def _explain_words(self, said: str) -> ApiError:
        """The error of what Triton or the orchestrator says in a stream."""
        words = " ".join(said.split())[:1000]
        if _BUSY.search(words):
            return busy(f"Triton takes no more requests now: {words}")
        if _AWAY.search(words):
            return self._away()
        if _FAILED.search(words):
            return _engine_failed(words)
        return bad_request(words)

    def _away(self) -> ApiError:
        self._limits = None
        return unavailable(f"Triton on {self.address} does not answer now. {_ANSWERS}")

    async def _explain(self, error: grpc.aio.AioRpcError) -> ApiError:
        code, words = error.code(), " ".join((error.details() or "").split())[:1000]
        if code == grpc.StatusCode.INVALID_ARGUMENT:
            return bad_request(words)
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            message = f"Triton gave no whole answer within {self._timeout_s:g} s."
            return ApiError(504, message, kind=SERVER, code="timeout")
        if code == grpc.StatusCode.UNAVAILABLE and await self.is_ready():
            return busy(f"Triton takes no more requests now: {words}")  # a server that answers is full, not away
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.CANCELLED):
            return self._away()
        return _engine_failed(words)


def _engine_failed(words: str) -> ApiError:
    return ApiError(500, f"The engine failed: {words}", kind=SERVER, code="engine_failed")


def _read_limits(parameters: Mapping[str, Any]) -> Limits:
    try:
        return Limits(**{name: int(parameters[name].string_value) for name in Limits.__dataclass_fields__})
    except (KeyError, ValueError):
        message = f"The model {STREAMING_MODEL} of this Triton is not trtspec's; deploy the repository with trtspec."
        raise ApiError(503, message, kind=SERVER, code="service_unavailable") from None
