"""/v1/chat/completions and /v1/completions: one request from its body to the end of its answer."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from trt_spec.openai.answer import Delta, follow_answer
from trt_spec.openai.api_error import SERVER, ApiError, bad_request
from trt_spec.openai.endpoint_metrics import CLIENT_LEFT
from trt_spec.openai.generation import Generation, plan_generation
from trt_spec.openai.http_exchange import ClientLeft, HttpExchange
from trt_spec.openai.merged import merge
from trt_spec.openai.prompts import completion_prompts, render_chat
from trt_spec.openai.request_fields import ChatRequest, CompletionRequest, Shared, check_model, read_fields
from trt_spec.openai.response_bodies import Choice, Kind, ResponseBodies
from trt_spec.openai.service import Service

_LOG = logging.getLogger("trt_spec.openai")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
DEFAULT_COMPLETION_TOKENS = 16  # of /v1/completions; a chat's answer may be as long as there is room


@dataclass(frozen=True)
class Plan:
    """A checked request: the generation of each choice, and the text that is put before it."""

    asked: Shared
    generations: Sequence[Generation]
    echoes: Sequence[str]
    prompt_tokens: int
    log_probs: bool


class GenerateEndpoint(ABC):
    """An ASGI application of one path. A client that leaves cancels the work in Triton."""

    path: str
    kind: Kind

    def __init__(self, service: Service) -> None:
        self._service = service

    @abstractmethod
    async def _plan(self, document: Any) -> Plan:
        """The checked request of a parsed body. Raises ApiError."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        request_id = _choose_id(headers.get(b"x-request-id"))
        exchange = HttpExchange(scope, receive, send, self._service.settings, request_id)
        metrics, begun = self._service.metrics, time.perf_counter()
        with metrics.in_flight.track_inprogress():
            try:
                self._service.keys.check(headers.get(b"authorization"))
                document = await exchange.read_json()
                status = await self._answer_while_there(exchange, document, request_id, begun)
            except ApiError as error:
                status = await _refuse(exchange, error)
            except ClientLeft:
                status = CLIENT_LEFT
        metrics.count(self.path, status, time.perf_counter() - begun)
        if status.startswith("5"):
            _LOG.warning("request %s to %s ended with status %s", request_id, self.path, status)

    async def _answer_while_there(self, exchange: HttpExchange, document: Any, request_id: str, begun: float) -> str:
        """The status; the work ends as soon as the client has left."""
        work = asyncio.create_task(self._answer(exchange, document, request_id, begun))
        gone = asyncio.create_task(exchange.wait_until_gone())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientLeft
            return await work
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _answer(self, exchange: HttpExchange, document: Any, request_id: str, begun: float) -> str:
        try:
            plan = await self._plan(document)
            bodies = ResponseBodies(
                self.kind,
                self._service.settings.model_names[0],
                self._service.vocabulary,
                prompt_tokens=plan.prompt_tokens,
                log_probs=plan.log_probs,
                tells_speculation=plan.asked.speculation,
                usage_in_chunks=plan.asked.includes_usage,
            )
            choices = [Choice(index) for index in range(len(plan.generations))]
            async with aclosing(self._deltas(plan, request_id)) as deltas:
                if plan.asked.stream:
                    await self._stream(exchange, plan, bodies, choices, deltas, begun)
                else:
                    await self._collect(exchange, plan, bodies, choices, deltas, begun)
            completion = sum(choice.tokens for choice in choices)
            self._service.metrics.count_tokens(prompt=plan.prompt_tokens, completion=completion)
            return "200"
        except (ApiError, ClientLeft):
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an error object and no traceback
            _LOG.exception("request %s to %s failed", request_id, self.path)
            message = f"The endpoint failed; its log tells more under request {request_id}."
            raise ApiError(500, message, kind=SERVER, code="internal_error") from None

    async def _deltas(self, plan: Plan, request_id: str) -> AsyncGenerator[Delta, None]:
        """The deltas of all choices, as they come; each choice is a request of its own to Triton."""
        count = len(plan.generations)
        limits = await self._service.connection.limits()
        answers = [
            follow_answer(
                self._service.connection.generate(
                    f"{request_id}-{index}" if count > 1 else request_id,
                    generation.values(index % plan.asked.choices),
                ),
                generation,
                index,
            )
            for index, generation in enumerate(plan.generations)
        ]
        with self._service.places.take(count, limits.max_requests):
            async with aclosing(merge(answers)) as merged:
                async for delta in merged:
                    yield delta

    async def _collect(
        self,
        exchange: HttpExchange,
        plan: Plan,
        bodies: ResponseBodies,
        choices: Sequence[Choice],
        deltas: AsyncGenerator[Delta, None],
        begun: float,
    ) -> None:
        async for delta in deltas:
            choices[delta.choice].add(delta)
        self._service.metrics.show_first(time.perf_counter() - begun)
        for choice, echo in zip(choices, plan.echoes, strict=True):
            choice.text = echo + choice.text
        await exchange.send_json(200, bodies.whole(choices))

    async def _stream(
        self,
        exchange: HttpExchange,
        plan: Plan,
        bodies: ResponseBodies,
        choices: Sequence[Choice],
        deltas: AsyncGenerator[Delta, None],
        begun: float,
    ) -> None:
        """The response begins with the first delta: what is refused until then gets its own status."""
        spoken: set[int] = set()
        try:
            async for delta in deltas:
                if not exchange.status:
                    await exchange.start_events()
                    self._service.metrics.show_first(time.perf_counter() - begun)
                echo = ""
                if delta.choice not in spoken:
                    spoken.add(delta.choice)
                    echo = plan.echoes[delta.choice]
                    if self.kind == "chat":
                        await exchange.send_event(bodies.first_chunk(delta.choice))
                choices[delta.choice].add(delta)
                text = echo + delta.text
                if text or delta.finish_reason or plan.log_probs:
                    await exchange.send_event(bodies.chunk(delta, text))
            if plan.asked.includes_usage or plan.asked.speculation:
                await exchange.send_event(bodies.usage_chunk(choices, with_usage=plan.asked.includes_usage))
        except ApiError as error:
            if not exchange.status:
                raise
            await exchange.send_event(error.body())  # the status is out already: clients find the object in the stream
        await exchange.end_events()

    async def _plan_all(
        self, asked: Shared, prompts: Sequence[str], max_tokens: int | None, log_probs: bool, param: str
    ) -> Plan:
        """Generations of all choices of all prompts, in their order."""
        connection, generations, prompt_tokens = self._service.connection, [], 0
        for prompt in prompts:
            generation = await plan_generation(
                asked,
                prompt,
                max_tokens,
                log_probs=log_probs,
                limits=await connection.limits(),
                vocabulary=self._service.vocabulary,
                param=param,
            )
            prompt_tokens += generation.prompt_tokens
            generations += [generation] * asked.choices
        return Plan(asked, generations, [""] * len(generations), prompt_tokens, log_probs)

    def _check_shared(self, asked: Shared) -> None:
        check_model(asked.model, self._service.settings.model_names)
        if asked.choices > self._service.settings.max_choices:
            raise bad_request(f"n is {asked.choices}, expected at most {self._service.settings.max_choices}.", "n")
        if asked.stream_options is not None and not asked.stream:
            raise bad_request("stream_options go with stream true only.", "stream_options")


class ChatEndpoint(GenerateEndpoint):
    """/v1/chat/completions."""

    path = "/v1/chat/completions"
    kind: Kind = "chat"

    async def _plan(self, document: Any) -> Plan:
        service, asked = self._service, read_fields(ChatRequest, document)
        self._check_shared(asked)
        if asked.top_logprobs:
            raise bad_request(
                "top_logprobs is not supported: the engines tell the log-probability of the chosen token alone. Send 0 "
                "or leave it out.",
                "top_logprobs",
                "unsupported_parameter",
            )
        given = {tokens for tokens in (asked.max_tokens, asked.max_completion_tokens) if tokens is not None}
        if len(given) > 1:
            raise bad_request(
                "max_tokens and max_completion_tokens are two names of one field and differ.", "max_tokens"
            )
        limits = await service.connection.limits()
        prompt = await render_chat(asked, service.templates, limits, service.vocabulary, service.settings.max_messages)
        return await self._plan_all(asked, [prompt], next(iter(given), None), bool(asked.logprobs), "messages")


class CompletionEndpoint(GenerateEndpoint):
    """/v1/completions."""

    path = "/v1/completions"
    kind: Kind = "text"

    async def _plan(self, document: Any) -> Plan:
        asked = read_fields(CompletionRequest, document)
        self._check_shared(asked)
        if asked.logprobs:
            raise bad_request(
                "logprobs above 0 is not supported: the engines tell the log-probability of the chosen token alone, "
                "which logprobs 0 asks for.",
                "logprobs",
                "unsupported_parameter",
            )
        if asked.echo and asked.logprobs is not None:
            raise bad_request("echo with logprobs is not supported: the prompt's are not computed.", "echo")
        prompts = completion_prompts(asked, self._service.vocabulary, self._service.settings.max_choices)
        max_tokens = DEFAULT_COMPLETION_TOKENS if asked.max_tokens is None else asked.max_tokens
        plan = await self._plan_all(asked, prompts, max_tokens, asked.logprobs is not None, "prompt")
        if not asked.echo:
            return plan
        echoes = [prompt for prompt in prompts for _ in range(asked.choices)]
        return Plan(asked, plan.generations, echoes, plan.prompt_tokens, plan.log_probs)


async def _refuse(exchange: HttpExchange, error: ApiError) -> str:
    try:
        await exchange.send_json(error.status, error.body(), error.headers)
    except ClientLeft:
        return CLIENT_LEFT
    return str(error.status)


def _choose_id(wanted: bytes | None) -> str:
    """The client's own id, where it can go into logs as it is."""
    if wanted is not None and _REQUEST_ID.fullmatch(wanted):
        return wanted.decode("ascii")
    return f"req_{secrets.token_hex(12)}"
