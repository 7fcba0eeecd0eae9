"""One HTTP exchange of ASGI: a bounded body in, JSON or server-sent events out, and a client that may leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json
from starlette.types import Receive, Scope, Send

from trt_spec.openai.api_error import ApiError, bad_request
from trt_spec.openai.settings import Settings

_JSON = (b"content-type", b"application/json")
_EVENTS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
_DONE = b"data: [DONE]\n\n"


class ClientLeft(Exception):
    """Nobody is there to read the answer, or nobody reads it."""


class HttpExchange:
    """Reads a request and writes its response; ``request_id`` goes back in a header of its own."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: Settings, request_id: str) -> None:
        self._headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._receive, self._send, self._settings = receive, send, settings
        self._id_header = (b"x-request-id", request_id.encode("ascii"))
        self.status = 0  # of the response, 0 while there is none

    async def read_json(self) -> Any:
        """The parsed body. ApiError for one that is too large, too slow or no JSON; ClientLeft if it never ends."""
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                body = await self._read_body()
        except TimeoutError:
            message = f"The body did not arrive within {self._settings.body_timeout_s:g} s."
            raise ApiError(408, message, code="timeout", headers={"Connection": "close"}) from None
        if not body:
            raise bad_request("The body is empty, expected JSON.")
        try:
            return from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise bad_request(f"The body is no JSON: {error}.") from None

    async def wait_until_gone(self) -> None:
        """Returns when the client has left; for the time after the body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def send_json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        encoded = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        length = (b"content-length", str(len(encoded)).encode())
        more = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        await self._start(status, [_JSON, length, *more])
        await self._write(encoded, more=False)

    async def start_events(self) -> None:
        await self._start(200, list(_EVENTS))

    async def send_event(self, body: Any) -> None:
        await self._write(encode_event(body), more=True)

    async def end_events(self) -> None:
        await self._write(_DONE, more=False)

    async def _read_body(self) -> bytes:
        limit = self._settings.max_body_bytes
        message = f"The body is larger than the {limit} bytes that are taken."
        too_large = ApiError(413, message, code="request_too_large", headers={"Connection": "close"})
        declared = self._headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            raise too_large
        parts, size = [], 0
        while True:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise ClientLeft
            part = event.get("body", b"")
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
            if not event.get("more_body", False):
                return b"".join(parts)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, self._id_header]})

    async def _write(self, body: bytes, *, more: bool) -> None:
        """A server waits here while the client takes nothing."""
        try:
            async with asyncio.timeout(self._settings.send_timeout_s):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except (TimeoutError, OSError):
            raise ClientLeft from None


def encode_event(body: Any) -> bytes:
    """One server-sent event."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8", "replace") + b"\n\n"
