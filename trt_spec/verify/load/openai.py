"""OpenAI-compatible servers (trtllm-serve, vLLM): /completions and /chat/completions as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal

from trt_spec.errors import SpecError
from trt_spec.verify.load.http import HttpSession
from trt_spec.verify.load.opening import no_such_model, opening
from trt_spec.verify.load.request import LoadRequest, Message, RequestFailed

Route = Literal["completions", "chat/completions"]


class OpenAIEndpoint:
    """A model behind ``base`` (http://HOST:PORT/v1); the server's only or first model if none is named.

    ``min_tokens`` and ``top_k`` are extensions that trtllm-serve and vLLM know.
    """

    def __init__(
        self, base: str, model: str | None = None, *, route: Route = "completions", api_key: str | None = None
    ) -> None:
        self._http = HttpSession(base, {"Authorization": f"Bearer {api_key}"} if api_key else None)
        self.model = model
        self._route = route

    @property
    def name(self) -> str:
        return f"{self.model or 'the first model'} on {self._http.base} ({self._route})"

    async def open(self) -> None:
        await self._http.open()
        async with opening(self):
            status, listed = await self._http.get_json("/models")
            rows = listed.get("data") if isinstance(listed, dict) else None
            if status != 200 or not isinstance(rows, list):
                raise SpecError(
                    f"{self._http.base}/models answered HTTP {status} and no list of models.",
                    remedy="Give the address with its /v1, such as http://127.0.0.1:8000/v1.",
                )
            served = [str(row.get("id")) for row in rows if isinstance(row, dict)]
            self.model = self.model or next(iter(served), None)
            if self.model not in served:
                raise no_such_model(self._http.base, self.model, f"it has: {', '.join(served) or 'none'}")

    async def close(self) -> None:
        await self._http.close()

    async def stream(self, request: LoadRequest) -> AsyncGenerator[Message, None]:
        if request.num_draft_tokens is not None:
            raise SpecError(
                f"{self.name} takes no num_draft_tokens: its server decides.", remedy="Leave it out for this endpoint."
            )
        async for event in self._http.events(f"/{self._route}", self._body(request)):
            if not isinstance(event, dict) or event.get("error"):
                raise RequestFailed(str(event.get("error") if isinstance(event, dict) else event))
            yield _read(event)

    def _body(self, request: LoadRequest) -> dict[str, Any]:
        text = request.text if isinstance(request.text, str) else request.text.decode("utf-8", errors="replace")
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "temperature": 0.0 if request.temperature is None else request.temperature,
            "seed": request.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._route == "completions":
            body["prompt"] = text
        else:
            body["messages"] = [{"role": "user", "content": text}]
        if request.top_k is not None:
            body["top_k"] = request.top_k
        if request.min_tokens is not None:
            body["min_tokens"] = request.min_tokens
        return body


def _read(event: dict[str, Any]) -> Message:
    choices = event.get("choices") or [{}]
    choice = choices[0]
    text = choice.get("text")
    if text is None:
        text = (choice.get("delta") or {}).get("content")
    usage = event.get("usage") or {}
    return Message(text=text or "", total_tokens=usage.get("completion_tokens"))
