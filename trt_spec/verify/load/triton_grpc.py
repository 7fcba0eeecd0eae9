"""Triton over gRPC: one bidirectional stream a request, so that leaving it cancels that request alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.serve.contract import STREAMING_MODEL
from trt_spec.verify.client import CONNECT_DEADLINE_S, channel_options, parse_url, reason
from trt_spec.verify.load.request import LoadRequest, Message, RequestFailed
from trt_spec.verify.load.triton_tensors import check_interface, request_values, text_grows
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
        try:
            import grpc
            import tritonclient.grpc.aio as triton
        except ImportError as error:
            raise EnvironmentMissing(
                "The Python package tritonclient is not installed.",
                remedy="Install it with: pip install 'trtspec[client]'.",
            ) from error
        self._failure = grpc.RpcError
        self._client = triton.InferenceServerClient(self.url, channel_args=channel_options(self.url))
        try:
            await self._client.get_server_metadata(client_timeout=CONNECT_DEADLINE_S)
        except triton.InferenceServerException as error:
            await self.close()
            raise EnvironmentMissing(
                f"No Triton server answers on {self.url} within {CONNECT_DEADLINE_S:g} s, the connect timeout "
                f"({reason(error)}).",
                remedy="Start it, or give the gRPC address of a running one.",
            ) from error
        try:
            response = await self._client.get_model_config(self.model, client_timeout=CONNECT_DEADLINE_S)
        except triton.InferenceServerException as error:
            await self.close()
            raise SpecError(
                f"{self.url} serves no model {self.model!r} ({reason(error)}).", remedy="Name one of its models."
            ) from error
        self._interface = read_interface(response.config)
        try:
            check_interface(self._interface, self.name)
        except SpecError:
            await self.close()
            raise

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
                yield _read(result, grows)
        except self._failure as error:
            raise RequestFailed(_words(error)) from error
        finally:
            call.cancel()


async def _only(model: str, inputs: list[Any]) -> AsyncIterator[dict[str, Any]]:
    yield {"model_name": model, "inputs": inputs}


def _read(result: Any, grows: bool) -> Message:
    drafted, accepted = read_ints(result, "total_draft_tokens"), read_ints(result, "total_accepted_draft_tokens")
    return Message(
        text=read_text(result, "text_output"),
        output_ids=read_ints(result, "output_ids"),
        rounds_drafted=read_ints(result, "round_draft_tokens"),
        rounds_accepted=read_ints(result, "round_accepted_draft_tokens"),
        drafted_tokens=sum(drafted) if drafted else None,
        accepted_tokens=sum(accepted) if accepted else None,
        text_grows=grows,
    )


def _words(error: Any) -> str:
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: "")() or str(error)
    return " ".join(f"{getattr(code, 'name', '')} {details}".split())
