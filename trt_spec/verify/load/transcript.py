"""Keeps what one stream said and when, as cheaply as it can: this runs once a message."""

from __future__ import annotations

from collections.abc import Callable

from trt_spec.verify.load.request import LoadRequest, Message
from trt_spec.verify.results import Outcome, RequestResult, TokenSource


class Transcript:
    """The messages of one answer so far."""

    def __init__(self) -> None:
        self._message_s: list[float] = []
        self._message_tokens: list[int] = []
        self._ids: list[int] = []
        self._knows_ids = False
        self._texts: list[str] = []
        self._last = Message()
        self._total_tokens: int | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a message with text or tokens has come."""
        return bool(self._message_s)

    def add(self, message: Message, seconds: float) -> None:
        """One message, ``seconds`` after the request was sent."""
        self._last = message
        if message.total_tokens is not None:
            self._total_tokens = message.total_tokens
        if message.output_ids is not None:
            self._knows_ids = True
            self._ids.extend(message.output_ids)
        if message.text_grows and self._texts:
            is_new = len(message.text) > len(self._texts[0])
            self._texts[0] = message.text
        else:
            is_new = bool(message.text)
            self._texts.append(message.text)
        if is_new or message.output_ids:
            self._message_s.append(seconds)
            self._message_tokens.append(len(message.output_ids or ()) or 1)

    def result(
        self,
        request: LoadRequest,
        outcome: Outcome,
        error: str,
        *,
        sent_s: float,
        delay_s: float,
        latency_s: float,
        count: Callable[[str], int] | None,
    ) -> RequestResult:
        """The record of this request. ``count`` counts the tokens of a text where the endpoint does not."""
        text = "".join(self._texts)
        tokens, source = self._count(text, count)
        last = self._last
        return RequestResult(
            id=request.id,
            kind=request.kind,
            outcome=outcome,
            error=error,
            sent_s=sent_s,
            delay_s=delay_s,
            latency_s=latency_s,
            message_s=tuple(self._message_s),
            message_tokens=tuple(self._message_tokens),
            tokens=tokens,
            token_source=source,
            text=text,
            output_ids=tuple(self._ids) if self._knows_ids else None,
            rounds_drafted=last.rounds_drafted or (),
            rounds_accepted=last.rounds_accepted or (),
            drafted_tokens=last.drafted_tokens,
            accepted_tokens=last.accepted_tokens,
        )

    def _count(self, text: str, count: Callable[[str], int] | None) -> tuple[int, TokenSource]:
        if self._knows_ids:
            return len(self._ids), "ids"
        if self._total_tokens is not None:
            return self._total_tokens, "usage"
        if count is not None:
            return count(text), "tokenizer"
        return len(self._message_s), "messages"
