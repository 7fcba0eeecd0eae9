"""Triton over gRPC: one bidirectional stream a request, so that leaving it cancels that request alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

from trt_spec.errors import EnvironmentMissing
from trt_spec.serve.contract import STREAMING_MODEL
from trt_spec.verify.client import CONNECT_DEADLINE_S, channel_options, parse_url, reason
from trt_spec.verify.client_package import importing
from trt_spec.verify.load.opening import no_such_model, opening
from trt_spec.verify.load.request import LoadRequest, Message, RequestFailed
from trt_spec.verify.load.triton_tensors import check_interface, read_message, request_values, text_grows
from trt_spec.verify.tensors import ModelInterface, build_inputs, read_interface, read_ints, read_text


class TritonGrpcEndpoint:
    """A text model behind ``url`` (HOST:PORT). ``with_details`` asks for ids and rounds where the model has them."""

    def __init__(self, url: str, model: str = STREAMING_MODEL, *, with_details: bool = True) -> None:
        self.url = parse_url(url)
        self.model = model
        self._with_details = with_details
        self._client: Any = None
        self._interface: ModelInterface | None = None
        self._failure: type[Exception] = Exception

    @property
    def name(self) -> str:
        return f"{self.model} on {self.url} (gRPC)"

    async def open(self) -> None:
        with importing("tritonclient"):
            import grpc
            import tritonclient.grpc.aio as triton
        self._failure = grpc.RpcError
        self._client = triton.InferenceServerClient(self.url, channel_args=channel_options(self.url))
        async with opening(self):
            try:
                await self._client.get_server_metadata(client_timeout=CONNECT_DEADLINE_S)
            except triton.InferenceServerException as error:
                raise EnvironmentMissing(
                    f"No Triton server answers on {self.url} within {CONNECT_DEADLINE_S:g} s, the connect timeout "
                    f"({reason(error)}).",
                    remedy="Start it, or give the gRPC address of a running one.",
                ) from error
            try:
                response = await self._client.get_model_config(self.model, client_timeout=CONNECT_DEADLINE_S)
            except triton.InferenceServerException as error:
                raise no_such_model(self.url, self.model, reason(error)) from error
            self._interface = read_interface(response.config)
            check_interface(self._interface, self.name)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def stream(self, request: LoadRequest) -> AsyncGenerator[Message, None]:
        assert self._interface is not None, "open() first"
        values = request_values(self._interface, request, with_details=self._with_details)
        inputs = build_inputs(self._interface, values)
        grows = text_grows(self._interface)
        call = self._client.stream_infer(_only(self.model, inputs))
        try:
            async for result, error in call:
                if error is not None:
                    raise RequestFailed(reason(error))
                text = read_text(result, "text_output")
                yield read_message(text, partial(read_ints, result), text_grows=grows)
        except self._failure as error:
            raise RequestFailed(_words(error)) from error
        finally:
            call.cancel()


async def _only(model: str, inputs: list[Any]) -> AsyncIterator[dict[str, Any]]:
    yield {"model_name": model, "inputs": inputs}


def _words(error: Any) -> str:
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: "")() or str(error)
    return " ".join(f"{getattr(code, 'name', '')} {details}".split())
