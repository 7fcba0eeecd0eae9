"""The one connection to Triton: many answers at once over gRPC, each a stream of its own that can be cancelled."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

from trt_spec.openai.api_error import SERVER, ApiError, bad_request, busy, unavailable
from trt_spec.openai.wire import Piece, build_request, read_piece
from trt_spec.serve.contract import STREAMING_MODEL

_LOOPBACK = re.compile(r"^(localhost|127\.|\[?::1\]?)")
_PROBE_TIMEOUT_S = 5.0
# With it an error of the model ends the stream with its gRPC status; else it is a text without a code (Triton 24.08).
_METADATA = (("triton_grpc_error", "true"),)
_ANSWERS = "Try again; the server's log says more."


@dataclass(frozen=True)
class Limits:
    """What the deployment takes, in tokens."""

    max_input_len: int
    max_output_len: int
    max_seq_len: int
    max_draft_len: int

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
        """The lengths of the deployment, read once and again after the server was away."""
        if self._limits is None:
            request = service_pb2.ModelConfigRequest(name=STREAMING_MODEL)
            try:
                response = await self._stub.ModelConfig(request, timeout=_PROBE_TIMEOUT_S)
                self._limits = _read_limits(response.config.parameters)
            except grpc.aio.AioRpcError as error:
                raise await self._explain(error) from None
        return self._limits

    async def generate(self, request_id: str, values: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
        """The pieces of one answer; closing the iterator early cancels the work in Triton."""
        call = self._stub.ModelStreamInfer(metadata=_METADATA, timeout=self._timeout_s)
        try:
            await call.write(build_request(service_pb2, request_id, values))
            await call.done_writing()
            while (message := await call.read()) is not grpc.aio.EOF:
                if message.error_message:  # of a server that does not know the metadata
                    raise bad_request(message.error_message)
                piece = read_piece(message.infer_response)
                yield piece
                if piece.is_final:
                    return
            raise await self._explain(grpc.aio.AioRpcError(await call.code(), (), (), await call.details()))
        except grpc.aio.AioRpcError as error:
            raise await self._explain(error) from None
        finally:
            call.cancel()

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
            self._limits = None
            return unavailable(f"Triton on {self.address} does not answer now. {_ANSWERS}")
        return ApiError(500, f"The engine failed: {words}", kind=SERVER, code="engine_failed")


def _read_limits(parameters: Mapping[str, Any]) -> Limits:
    try:
        return Limits(**{name: int(parameters[name].string_value) for name in Limits.__dataclass_fields__})
    except (KeyError, ValueError):
        message = f"The model {STREAMING_MODEL} of this Triton is not trtspec's; deploy the repository with trtspec."
        raise ApiError(503, message, kind=SERVER, code="service_unavailable") from None
