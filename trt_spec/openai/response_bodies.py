"""The bodies of answers: whole ones and chunks, of both kinds of request."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trt_spec.openai.answer import Delta
from trt_spec.openai.vocabulary import Vocabulary
from trt_spec.openai.wire import NOTHING_DRAFTED, Speculation

Kind = Literal["chat", "text"]
Body = dict[str, Any]


@dataclass
class Choice:
    """All of one choice, put together from its deltas."""

    index: int
    text: str = ""
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    tokens: int = 0
    speculation: Speculation = NOTHING_DRAFTED

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.ids += delta.ids
        self.log_probs += delta.log_probs
        if delta.finish_reason is not None:
            self.finish_reason, self.tokens, self.speculation = (
                delta.finish_reason,
                delta.total_tokens,
                delta.speculation,
            )


class ResponseBodies:
    """Writes the bodies of one request's answer."""

    def __init__(
        self,
        kind: Kind,
        model: str,
        vocabulary: Vocabulary,
        *,
        prompt_tokens: int,
        log_probs: bool,
        tells_speculation: bool,
        usage_in_chunks: bool = False,
    ) -> None:
        self._kind = kind
        self._vocabulary = vocabulary
        self._prompt_tokens = prompt_tokens
        self._log_probs = log_probs
        self._tells_speculation = tells_speculation
        self._usage_in_chunks = usage_in_chunks
        self._offsets: dict[int, int] = {}
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        self._head = {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "object": "chat.completion" if kind == "chat" else "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, choices: Sequence[Choice]) -> Body:
        """The answer of a request that does not stream."""
        body: Body = {**self._head, "choices": [self._whole_choice(choice) for choice in choices]}
        body["usage"] = self._usage(choices)
        return body | self._speculation(choices)

    def first_chunk(self, choice: int) -> Body:
        """What a chat's stream begins with: who speaks."""
        return self._chunk({"index": choice, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})

    def chunk(self, delta: Delta, text: str) -> Body:
        """One step of a stream; ``text`` is what it shows, an echoed prompt included."""
        log_probs = self._log_prob_object(delta.ids, delta.log_probs, delta.choice)
        entry: Body = {"index": delta.choice}
        if self._kind == "chat":
            entry["delta"] = {"content": text} if text else {}
        else:
            entry["text"] = text
        entry |= {"logprobs": log_probs, "finish_reason": delta.finish_reason}
        return self._chunk(entry)

    def usage_chunk(self, choices: Sequence[Choice], *, with_usage: bool) -> Body:
        """The last chunk, which has no choice: the counts, and what was speculated."""
        body: Body = {**self._chunk_head(), "choices": []}
        if with_usage:
            body["usage"] = self._usage(choices)
        return body | self._speculation(choices)

    def _chunk(self, entry: Body) -> Body:
        body: Body = {**self._chunk_head(), "choices": [entry]}
        if self._usage_in_chunks:
            body["usage"] = None
        return body

    def _chunk_head(self) -> Body:
        return {**self._head, "object": "chat.completion.chunk"} if self._kind == "chat" else self._head

    def _whole_choice(self, choice: Choice) -> Body:
        entry: Body = {"index": choice.index}
        if self._kind == "chat":
            entry["message"] = {"role": "assistant", "content": choice.text, "refusal": None}
        else:
            entry["text"] = choice.text
        log_probs = self._log_prob_object(choice.ids, choice.log_probs, choice.index)
        return entry | {"logprobs": log_probs, "finish_reason": choice.finish_reason}

    def _log_prob_object(self, ids: Sequence[int], log_probs: Sequence[float], choice: int) -> Body | None:
        """Of every generated token, those of a stop text included; the engines tell no alternatives."""
        if not self._log_probs or not ids:
            return None
        texts = [self._vocabulary.token_text(token) for token in ids]
        if self._kind == "chat":
            entries = [
                {"token": text, "logprob": log_prob, "bytes": self._vocabulary.token_bytes(token), "top_logprobs": []}
                for text, token, log_prob in zip(texts, ids, log_probs, strict=True)
            ]
            return {"content": entries, "refusal": None}
        offsets = []
        for text in texts:
            offsets.append(self._offsets.get(choice, 0))
            self._offsets[choice] = offsets[-1] + len(text)
        return {"tokens": texts, "token_logprobs": list(log_probs), "top_logprobs": None, "text_offset": offsets}

    def _usage(self, choices: Sequence[Choice]) -> Body:
        completion = sum(choice.tokens for choice in choices)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self._prompt_tokens + completion,
        }

    def _speculation(self, choices: Sequence[Choice]) -> Body:
        """An entry for each choice; acceptance figures by the names that the orchestrator uses."""
        if not self._tells_speculation:
            return {}
        return {"speculation": [_speculation_entry(choice) for choice in choices]}


def _speculation_entry(choice: Choice) -> Body:
    told = choice.speculation
    return {
        "index": choice.index,
        "draft_rounds": told.rounds,
        "total_draft_tokens": told.drafted,
        "total_accepted_draft_tokens": told.accepted,
        "acceptance_rate": told.accepted / told.drafted if told.drafted else 0.0,
        "round_draft_tokens": list(told.round_drafted),
        "round_accepted_draft_tokens": list(told.round_accepted),
        "draft_fallback": told.fell_back,
    }
