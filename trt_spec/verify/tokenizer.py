"""The target's tokenizer folder: token ids, end ids and the chat template, without transformers.

The reference run must feed the engine exactly the ids that the orchestrator makes of the same text.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_spec.errors import EnvironmentMissing, SpecError

if TYPE_CHECKING:
    from trt_spec.serve.tokens import TextTokenizer

ChatTemplate = Callable[[Sequence[tuple[str, str]]], str]


@dataclass(frozen=True)
class TargetTokenizer:
    """Token ids as the orchestrator makes them (``text`` is its own tokenizer), and the model's chat template."""

    text: TextTokenizer
    chat_template: ChatTemplate | None

    @property
    def end_ids(self) -> tuple[int, ...]:
        return self.text.end_ids

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text with the special tokens the tokenizer adds itself."""
        return tuple(self.text.encode(text))

    def render_prompt(self, text: str) -> str:
        """The text to send: the user's message in the model's chat template, or as it is for a base model."""
        return self.render_turns([("user", text)])

    def render_turns(self, turns: Sequence[tuple[str, str]]) -> str:
        """A conversation of (role, content), the same way; of a base model's, the last message alone."""
        return self.chat_template(turns) if self.chat_template else turns[-1][1]


def load_tokenizer(folder: Path) -> TargetTokenizer:
    """Reads tokenizer.json, tokenizer_config.json and generation_config.json of a model or engine folder."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SpecError(
            f"{folder} holds no tokenizer.json, which verify needs to call the target engine directly.",
            remedy="Give --tokenizer the model's folder, or leave it out to compare with the orchestrator alone.",
        )
    settings = _read_json(folder / "tokenizer_config.json")
    try:
        from trt_spec.serve.tokens import TextTokenizer
    except ImportError as error:
        raise EnvironmentMissing(
            "The Python package tokenizers is not installed.", remedy="Install it with: pip install 'trtspec[client]'."
        ) from error
    try:
        text = TextTokenizer(folder)
    except Exception as error:  # the Rust side raises plain Exception for every fault of the file
        raise SpecError(
            f"{path} is not a tokenizer file: {error}.", remedy="Fetch the model's tokenizer again."
        ) from error
    return TargetTokenizer(text, _load_chat_template(folder, settings))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} cannot be read as JSON: {error}.", remedy="Fetch the model's files again.") from error
    if not isinstance(value, dict):
        raise SpecError(f"{path}: a JSON object was expected.", remedy="Fetch the model's files again.")
    return value


def _token_text(value: Any) -> str:
    """Special tokens stand in tokenizer_config.json as a string or as an AddedToken object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _load_chat_template(folder: Path, settings: dict[str, Any]) -> ChatTemplate | None:
    template_file = folder / "chat_template.jinja"
    source = template_file.read_text(encoding="utf-8") if template_file.is_file() else settings.get("chat_template")
    if isinstance(source, list):
        named = {row.get("name"): row.get("template") for row in source if isinstance(row, dict)}
        source = named.get("default")
    if not isinstance(source, str) or not source:
        return None
    return _compile_template(source, settings, str(folder))


def _compile_template(source: str, settings: dict[str, Any], where: str) -> ChatTemplate:
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise EnvironmentMissing(
            "The Python package jinja2 is not installed, and this model has a chat template.",
            remedy="Install it with: pip install 'trtspec[client]'.",
        ) from error

    def refuse(message: str) -> None:
        raise TemplateError(message)

    # The settings and the two functions that Hugging Face templates rely on; a template is a stranger's program.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    now = datetime.datetime.now()  # one moment for the whole run: ids and text of a prompt must not part at midnight
    environment.globals["strftime_now"] = now.strftime
    tokens = {name: _token_text(settings.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}

    def render(turns: Sequence[tuple[str, str]]) -> str:
        messages = [{"role": role, "content": content} for role, content in turns]
        try:
            return environment.from_string(source).render(messages=messages, add_generation_prompt=True, **tokens)
        except TemplateError as error:
            raise SpecError(
                f"The chat template of {where} cannot be rendered: {error}.",
                remedy="Correct it in tokenizer_config.json.",
            ) from error

    return render
