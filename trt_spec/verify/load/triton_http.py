"""Triton over HTTP: the generate_stream extension, one server-sent event a message."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from trt_spec.serve.contract import STREAMING_MODEL
from trt_spec.verify.load.http import HttpSession
from trt_spec.verify.load.opening import no_such_model, opening
from trt_spec.verify.load.request import LoadRequest, Message, RequestFailed
from trt_spec.verify.load.triton_tensors import check_interface, read_message, request_values, text_grows
from trt_spec.verify.tensors import ModelInterface, wire_dtype


class TritonHttpEndpoint:
    """A text model behind ``base`` (http://HOST:PORT)."""

    def __init__(self, base: str, model: str = STREAMING_MODEL, *, with_details: bool = True) -> None:
        self.model = model
        self._with_details = with_details
        self._http = HttpSession(base)
        self._interface: ModelInterface | None = None

    @property
    def name(self) -> str:
        return f"{self.model} on {self._http.base} (HTTP)"

    async def open(self) -> None:
        await self._http.open()
        async with opening(self):
            status, config = await self._http.get_json(f"/v2/models/{self.model}/config")
            if status != 200 or not isinstance(config, dict):
                raise no_such_model(self._http.base, self.model, f"HTTP {status}")
            self._interface = _read_interface(config)
            check_interface(self._interface, self.name)

    async def close(self) -> None:
        await self._http.close()

    async def stream(self, request: LoadRequest) -> AsyncGenerator[Message, None]:
        assert self._interface is not None, "open() first"
        values = request_values(self._interface, request, with_details=self._with_details)
        if isinstance(request.text, bytes):
            values["text_input"] = request.text.decode("utf-8", errors="surrogateescape")
        grows = text_grows(self._interface)
        async for event in self._http.events(f"/v2/models/{self.model}/generate_stream", values):
            if not isinstance(event, dict) or "error" in event:
                raise RequestFailed(str(event.get("error") if isinstance(event, dict) else event))
            text = event.get("text_output", "")
            whole = "".join(text) if isinstance(text, list) else str(text)
            yield read_message(whole, partial(_ints, event), text_grows=grows)


def _read_interface(config: dict[str, Any]) -> ModelInterface:
    return ModelInterface(
        name=str(config.get("name", "")),
        inputs={row["name"]: wire_dtype(row["data_type"]) for row in config.get("input", [])},
        outputs=frozenset(row["name"] for row in config.get("output", [])),
        parameters={key: row.get("string_value", "") for key, row in config.get("parameters", {}).items()},
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
    )


def _ints(event: dict[str, Any], name: str) -> tuple[int, ...] | None:
    value = event.get(name)
    if value is None:
        return None
    return tuple(value) if isinstance(value, list) else (int(value),)
