"""One HTTP session of a load, and errors of HTTP in words. aiohttp: its parser is the cheapest a message."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.verify.client import CONNECT_DEADLINE_S
from trt_spec.verify.client_package import importing
from trt_spec.verify.load.request import RequestFailed
from trt_spec.verify.load.sse import read_events

_SHOWN_BODY_CHARACTERS = 300


class HttpSession:
    """Connections to one server, kept between requests; as many as there are requests in flight."""

    def __init__(self, base: str, headers: dict[str, str] | None = None) -> None:
        if not base.startswith(("http://", "https://")):
            raise SpecError(f"{base!r} is no HTTP address.", remedy="Give one such as http://127.0.0.1:8000.")
        self.base = base.rstrip("/")
        self._headers = headers or {}
        self._session: Any = None
        self._failure: tuple[type[Exception], ...] = ()
        self._unreachable: tuple[type[Exception], ...] = ()

    async def open(self) -> None:
        """Raises EnvironmentMissing without aiohttp."""
        with importing("aiohttp"):
            import aiohttp
        self._failure = (aiohttp.ClientError, ConnectionError)
        self._unreachable = (*self._failure, TimeoutError)
        # The load has deadlines of its own; only connecting is bounded here, and told apart by its message.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_DEADLINE_S)
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=timeout, connector=connector, read_bufsize=2**20
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get_json(self, path: str) -> tuple[int, Any]:
        """Status and JSON body of a GET, body None when it is no JSON. EnvironmentMissing when nobody answers."""
        try:
            async with self._session.get(self.base + path, timeout=CONNECT_DEADLINE_S) as response:
                body = await response.read()
                try:
                    return response.status, json.loads(body)
                except ValueError:
                    return response.status, None
        except self._unreachable as error:
            raise EnvironmentMissing(
                f"Nobody answers on {self.base} within {CONNECT_DEADLINE_S:g} s, the connect timeout "
                f"({_words(error)}).",
                remedy="Start the server, or give the address of a running one.",
            ) from error

    async def events(self, path: str, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """The JSON events that answer a POST, up to ``[DONE]``. Raises RequestFailed."""
        try:
            async with self._session.post(self.base + path, json=body) as response:
                if response.status >= 400:
                    raise RequestFailed(f"HTTP {response.status}: {_shorten(await response.read())}")
                if "text/event-stream" not in response.headers.get("Content-Type", ""):
                    raise RequestFailed("the answer is no stream of events (text/event-stream)")
                async for data in read_events(response.content.iter_any()):
                    if data == b"[DONE]":
                        return
                    yield _parse(data)
        except self._failure as error:
            raise RequestFailed(_words(error)) from error


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise RequestFailed(f"an event of the stream is no JSON: {_shorten(data)}") from error


def _shorten(body: bytes) -> str:
    return " ".join(body.decode("utf-8", errors="replace").split())[:_SHOWN_BODY_CHARACTERS]


def _words(error: BaseException) -> str:
    name = type(error).__name__
    if "ConnectionTimeout" in name or "ServerTimeout" in name:
        return f"connect timeout {CONNECT_DEADLINE_S:g} s"
    return " ".join(str(error).split()) or name
