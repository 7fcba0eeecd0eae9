"""One row of a prompts file in the layouts of the field: ours, OpenAI chat, ShareGPT and AIPerf. Pure.

    ours          {"text": ...} or {"prompt": ...}
    OpenAI        {"messages": [{"role": ..., "content": ...}, ...]}, also as the "body" of a batch file
    ShareGPT      {"conversations": [{"from": "human", "value": ...}, ...]}
    AIPerf        {"text": ...}, {"turns": [{"text": ...}, ...]}, and traces {"timestamp": ms, "output_length": n} with
                  "text_input" or, without a text, "input_length"

A conversation is sent up to its last user message: an answer recorded behind it is what the model is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_ROLE_OF = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
_TEXT_KEYS = ("text", "prompt", "text_input")
_CONVERSATION_KEYS = ("messages", "conversations", "turns")


class Turn(NamedTuple):
    """One message of a conversation; ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Content:
    """What one row says: the last user message, the conversation up to it, lengths and time."""

    text: str
    turns: tuple[Turn, ...]
    output_tokens: int | None
    input_tokens: int | None
    timestamp_s: float | None


def read_row(row: Mapping[str, Any]) -> Content:
    """Raises ValueError, one sentence without a file name, for a row that is in none of the layouts."""
    body = row.get("body")
    inner = body if isinstance(body, dict) and "messages" in body else row
    output_tokens = _count(inner, "output_length") or _count(inner, "max_tokens")
    timestamp_ms = _number(row, "timestamp")
    text, turns = _find_text(inner)
    input_tokens = None if text else _count(inner, "input_length")
    return Content(
        text=text,
        turns=turns,
        output_tokens=output_tokens,
        input_tokens=input_tokens,
        timestamp_s=None if timestamp_ms is None else timestamp_ms / 1000,
    )


def refuse_half_characters(text: str, turns: Sequence[Turn]) -> None:
    """Raises ValueError for a lone surrogate anywhere: UTF-8 cannot carry it."""
    for part in (text, *(turn.content for turn in turns)):
        try:
            part.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text holds a lone surrogate (half a character) at position {error.start + 1}."
            ) from error


def _find_text(row: Mapping[str, Any]) -> tuple[str, tuple[Turn, ...]]:
    keys = [key for key in (*_TEXT_KEYS, *_CONVERSATION_KEYS) if key in row]
    if not keys and "input_length" in row:
        return "", ()
    if len(keys) != 1:
        found = " and ".join(map(repr, keys)) or "none (keys: " + (", ".join(map(repr, row)) or "none") + ")"
        raise ValueError(
            f"one of {', '.join(map(repr, (*_TEXT_KEYS, *_CONVERSATION_KEYS)))} was expected, found {found}."
        )
    key = keys[0]
    if key in _TEXT_KEYS:
        return _string(row[key], repr(key)), ()
    rows = row[key]
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{key!r} must be a list of messages, found {rows!r}.")
    turns = [_turn(item, key, number) for number, item in enumerate(rows, start=1)]
    last = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=None)
    if last is None:
        raise ValueError(f"{key!r} holds no message of a user.")
    kept = tuple(turns[: last + 1])
    return kept[-1].content, kept if len(kept) > 1 else ()


def _turn(item: Any, key: str, number: int) -> Turn:
    where = f"message {number} of {key!r}"
    if not isinstance(item, dict):
        raise ValueError(f"{where} must be an object, found {item!r}.")
    named = {"messages": ("role", "content"), "conversations": ("from", "value"), "turns": ("role", "text")}[key]
    said = item.get(named[0], "user" if key == "turns" else None)
    role = _ROLE_OF.get(said) if isinstance(said, str) else None
    if role is None:
        raise ValueError(f"{where}: {named[0]!r} must be one of {', '.join(_ROLE_OF)}, found {said!r}.")
    content = item.get(named[1])
    if isinstance(content, list):  # OpenAI's content parts
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(parts) != len(content):
            raise ValueError(f"{where}: only parts of type 'text' can be sent.")
        content = "".join(map(str, parts))
    return Turn(role, _string(content, f"{where}: {named[1]!r}"))


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be a non-empty string, found {value!r}.")
    return value


def _number(row: Mapping[str, Any], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{key!r} must be a number of at least 0, found {value!r}.")
    return float(value)


def _count(row: Mapping[str, Any], key: str) -> int | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key!r} must be a whole number of at least 1, found {value!r}.")
    return value
