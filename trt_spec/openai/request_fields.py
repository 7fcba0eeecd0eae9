"""What clients send: the fields of the OpenAI API, typed, and which of them are refused.

Fields that are not served are taken with the values that ask for nothing, because clients send them always. Any other
value is refused by name: a field that is silently dropped would change the answer.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trt_spec.openai.api_error import ApiError, bad_request
from trt_spec.serve.text_request import MAX_WORDS

MAX_STOPS = 16
MAX_INT32 = 2**31 - 1

TokenId = Annotated[int, Field(ge=0, le=MAX_INT32)]
Bias = Annotated[float, Field(ge=-100.0, le=100.0)]
StopText = Annotated[str, Field(min_length=1, max_length=1024)]
MaxTokens = Annotated[int, Field(ge=1, le=MAX_INT32)]

NOTHING: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "function_call": (None, "none", "auto"),
    "functions": (None, []),
    "min_p": (None, 0, 0.0),
    "modalities": (None, ["text"]),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "reasoning_effort": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "suffix": (None, ""),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}
"""Fields that are not served, with the values that ask for nothing."""


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StreamOptions(_Fields):
    """``include_usage`` asks for a last chunk with the counts."""

    include_usage: bool = False
    include_obfuscation: bool = False


class Shared(_Fields):
    """What both kinds of request have. The lower half is not in the OpenAI API."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MAX_WORDS)] | None = None
    # Who asks and why: nothing here depends on it.
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    top_k: Annotated[int, Field(ge=-1, le=MAX_INT32)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=10.0)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOPS)] | None = None
    ignore_eos: bool = False
    num_draft_tokens: Annotated[int, Field(ge=0, le=64)] | None = None
    speculation: bool = False  # the answer tells what was drafted and accepted

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class TextPart(_Fields):
    type: Literal["text"]
    text: str


class FunctionCall(_Fields):
    name: str
    arguments: str


class ToolCall(_Fields):
    id: str
    type: Literal["function"]
    function: FunctionCall


class Message(_Fields):
    """One message; which fields a role needs is for ``messages.py`` to say."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = None


class Tool(_Fields):
    type: Literal["function"]
    function: dict[str, Any]


class ChatRequest(Shared):
    """A body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto"] | None = None

    add_generation_prompt: bool = True
    chat_template: str | None = None  # the name of one of the model's templates
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(Shared):
    """A body of /v1/completions."""

    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    max_tokens: MaxTokens | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None


Asked = TypeVar("Asked", bound=Shared)


def read_fields(kind: type[Asked], document: Any) -> Asked:
    """The typed request of a parsed body; ApiError names the field and what was expected of it."""
    if not isinstance(document, dict):
        raise bad_request(f"The body is a JSON {type(document).__name__}, expected an object.")
    served = {}
    for name, value in document.items():
        if name not in NOTHING or name in kind.model_fields:
            served[name] = value
        elif not any(value == nothing and type(value) is type(nothing) for nothing in NOTHING[name]):
            raise bad_request(f"{name} is not supported here; leave it out.", name, "unsupported_parameter")
    try:
        return kind.model_validate(served)
    except ValidationError as error:
        _refuse(error, kind)


def _refuse(error: ValidationError, kind: type[Shared]) -> NoReturn:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"][:3])[:200]
    if first["type"] == "extra_forbidden":
        name = str(first["loc"][-1])[:100]
        near = difflib.get_close_matches(name, kind.model_fields, 1) if len(first["loc"]) == 1 else []
        advice = f"did you mean {near[0]}?" if near else "leave it out."
        raise bad_request(f"Unknown field {where}; {advice}", where, "unknown_parameter")
    if first["type"] == "missing":
        raise bad_request(f"{where} is missing.", where, "missing_required_parameter")
    message = first["msg"][:1].lower() + first["msg"][1:]
    raise bad_request(f"{where}: {message}.", where, "invalid_value")


def check_model(name: str, served: tuple[str, ...]) -> None:
    """ApiError 404 for a model that is not served here."""
    if name not in served:
        message = f"The model {name[:100]!r} does not exist here; this endpoint serves {', '.join(served)}."
        raise ApiError(404, message, param="model", code="model_not_found")
