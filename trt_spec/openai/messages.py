"""Chat messages as templates take them, checked for what each role needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trt_spec.openai.api_error import bad_request
from trt_spec.openai.request_fields import Message

ROLES = {"developer": "system"}  # newer name of the same role; templates know the older one


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages of a request as a chat template reads them. ApiError names the message that is wrong."""
    return [_template_message(message, f"messages.{place}") for place, message in enumerate(messages)]


def _template_message(message: Message, where: str) -> dict[str, Any]:
    content = _text(message)
    if content is None and not (message.role == "assistant" and message.tool_calls):
        raise bad_request(f"{where}.content is missing.", f"{where}.content", "missing_required_parameter")
    if message.tool_calls and message.role != "assistant":
        raise bad_request(f"{where}.tool_calls: only an assistant calls tools.", f"{where}.tool_calls")
    if message.role == "tool" and not message.tool_call_id:
        raise bad_request(f"{where}.tool_call_id is missing.", f"{where}.tool_call_id", "missing_required_parameter")
    values: dict[str, Any] = {"role": ROLES.get(message.role, message.role)}
    if content is not None:  # templates take a missing key better than one without a value
        values["content"] = content
    for name in ("name", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            values[name] = value
    if message.tool_calls:
        values["tool_calls"] = [
            {"id": call.id, "type": "function", "function": _function(call.function, f"{where}.tool_calls.{place}")}
            for place, call in enumerate(message.tool_calls)
        ]
    return values


def _text(message: Message) -> str | None:
    """Parts are lines of one text: templates of text models take no lists."""
    if isinstance(message.content, list):
        return "\n".join(part.text for part in message.content) if message.content else None
    return message.content


def _function(function: Any, where: str) -> dict[str, Any]:
    """Templates write the arguments out themselves, so they get the object, not its JSON."""
    try:
        arguments = json.loads(function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise bad_request(f"{where}.function.arguments is not the JSON of an object.", where, "invalid_value")
    return {"name": function.name, "arguments": arguments}
