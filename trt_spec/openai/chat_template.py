"""Chat templates of the model's own files, rendered as transformers renders them, in a sandbox.

Environment and globals are those of transformers' utils/chat_template_utils.py (5.x): trimmed blocks, loop controls,
``tojson`` without HTML escapes, ``raise_exception``, ``strftime_now``, and the block ``generation``, which only marks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trt_spec.errors import SpecError
from trt_spec.openai.api_error import bad_request

DEFAULT, TOOL_USE = "default", "tool_use"
OWN_VARIABLES = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


class _TemplateRefusal(jinja2.TemplateError):
    """What a template says about messages that it does not take."""


class _GenerationBlock(Extension):
    """``{% generation %}`` marks what the assistant says, for training; here it is only shown."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplates:
    """The templates of one model by name; ``tokens`` are its special tokens by the names that templates use."""

    def __init__(self, sources: Mapping[str, str], tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now, "dict": _make_dict}
        self._tokens = dict(tokens)
        self._templates = {name: _compile(environment, name, source) for name, source in sources.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._templates)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt. ApiError for a model without a template, an unknown one, and what the template refuses."""
        template = self._choose(name, bool(tools))
        extra = extra or {}
        if taken := OWN_VARIABLES & extra.keys():
            raise bad_request(f"chat_template_kwargs sets {', '.join(sorted(taken))}.", "chat_template_kwargs")
        values = {
            **self._tokens,
            **extra,
            "messages": messages,
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return template.render(values)
        except _TemplateRefusal as error:
            raise bad_request(f"The chat template refuses these messages: {error}", "messages") from None
        except Exception as error:  # noqa: BLE001 - a template is a program, and anything can go wrong in it
            said = f"{type(error).__name__}: {error}"[:300]
            raise bad_request(f"The chat template cannot render these messages ({said}).", "messages") from None

    def _choose(self, name: str | None, has_tools: bool) -> jinja2.Template:
        if not self._templates:
            raise bad_request(
                "This model has no chat template. Send the whole prompt to /v1/completions, or start the endpoint with "
                "--chat-template FILE.",
                "messages",
                "no_chat_template",
            )
        if name is None:
            name = TOOL_USE if has_tools and TOOL_USE in self._templates else DEFAULT
        if name not in self._templates:
            found = ", ".join(sorted(self._templates))
            raise bad_request(f"There is no chat template {name[:100]!r}, expected one of {found}.", "chat_template")
        return self._templates[name]


def load_templates(folder: Path, override: Path | None = None) -> ChatTemplates:
    """The templates of a tokenizer's folder; ``override`` is a file to use in place of the default one.

    Read in the order of transformers: chat_template.jinja and additional_chat_templates/*.jinja, chat_template.json,
    then tokenizer_config.json, where a list names several. Raises SpecError for a file that is no template.
    """
    settings = _read_json(folder / "tokenizer_config.json")
    sources = _named(settings.get("chat_template"))
    sources |= _named(_read_json(folder / "chat_template.json").get("chat_template"))
    if (file := folder / "chat_template.jinja").is_file():
        sources[DEFAULT] = _read(file)
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        sources[file.stem] = _read(file)
    if override is not None:
        sources[DEFAULT] = _read(override)
    return ChatTemplates(sources, _special_tokens(folder, settings))


def _special_tokens(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    both = {**_read_json(folder / "special_tokens_map.json"), **settings}
    found = {}
    for name in SPECIAL_TOKENS:
        token = both.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            found[name] = text
    return found


def _named(entry: Any) -> dict[str, str]:
    if isinstance(entry, str):
        return {DEFAULT: entry}
    return {item["name"]: item["template"] for item in entry or ()}


def _compile(environment: jinja2.Environment, name: str, source: str) -> jinja2.Template:
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise SpecError(
            f"Chat template {name!r} is no Jinja template: {error.message} (line {error.lineno}).",
            remedy="Correct it, or name another one with --chat-template FILE.",
        ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path} cannot be read as UTF-8 text ({error}).", remedy="Name a readable template."
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise _TemplateRefusal(message)


def _make_dict(*pairs: Any, **values: Any) -> dict[Any, Any]:
    """A function in place of the class, whose attributes are nothing for a template."""
    return dict(*pairs, **values)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
