"""The prompts that verify sends: ours by default, or the user's JSON Lines file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError

DEFAULT_PROMPTS = Path(__file__).with_name("prompts.jsonl")

_REMEDY = 'Write one JSON object a line: {"text": "..."} (or "prompt"), optionally with "id" and "kind".'


@dataclass(frozen=True)
class Prompt:
    """One request of the workload: ``text`` is the user's message, before any chat template."""

    id: str
    kind: str
    text: str


def load_prompts(path: Path | None = None) -> tuple[Prompt, ...]:
    """Prompts of a JSON Lines file, or those that ship with trtspec. Blank lines are skipped.

    Raises SpecError with the line number for anything that is not an object with one non-empty text.
    """
    source = path or DEFAULT_PROMPTS
    prompts: list[Prompt] = []
    line_of_id: dict[str, int] = {}
    for number, line in enumerate(_read_lines(source), start=1):
        if not line.strip():
            continue
        prompt = _parse_line(line, f"{source}, line {number}", f"line-{number}")
        if prompt.id in line_of_id:
            raise SpecError(
                f"{source}, line {number}: the id {prompt.id!r} is already taken by line {line_of_id[prompt.id]}.",
                remedy="Give every prompt its own id, or leave ids out.",
            )
        line_of_id[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise SpecError(f"{source} holds no prompt, at least one was expected.", remedy=_REMEDY)
    return tuple(prompts)


def _read_lines(source: Path) -> list[str]:
    try:
        data = source.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(f"The prompts file {source} cannot be read: {reason}.", remedy="Check the path.") from error
    lines: list[str] = []
    # Split on newlines only: str.splitlines would also break at U+2028, which may stand inside a JSON string.
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            lines.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise SpecError(
                f"{source}, line {number}: byte {error.start + 1} of the line is not UTF-8.",
                remedy="Save the prompts file as UTF-8.",
            ) from error
    return lines


def _parse_line(line: str, where: str, default_id: str) -> Prompt:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise SpecError(f"{where}: not valid JSON ({error}).", remedy=_REMEDY) from error
    if not isinstance(row, dict):
        raise SpecError(f"{where}: a JSON object was expected, found {type(row).__name__}.", remedy=_REMEDY)
    return Prompt(
        id=_parse_label(row, "id", default_id, where),
        kind=_parse_label(row, "kind", "user", where),
        text=_text(row, where),
    )


def _parse_label(row: dict[str, Any], key: str, default: str, where: str) -> str:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise SpecError(f"{where}: {key!r} must be a word or a whole number, found {value!r}.", remedy=_REMEDY)
    return str(value)


def _text(row: dict[str, Any], where: str) -> str:
    if "messages" in row:
        raise SpecError(
            f'{where}: "messages" (a whole conversation) is not supported, only single user texts are.',
            remedy="Put the user's message under \"text\"; verify applies the model's chat template to it.",
        )
    keys = [key for key in ("text", "prompt") if key in row]
    if len(keys) != 1:
        found = "both" if keys else "neither (keys: " + (", ".join(map(repr, row)) or "none") + ")"
        raise SpecError(f'{where}: one of "text" and "prompt" was expected, found {found}.', remedy=_REMEDY)
    text = row[keys[0]]
    if not isinstance(text, str) or not text:
        raise SpecError(f"{where}: {keys[0]!r} must be a non-empty string, found {text!r}.", remedy=_REMEDY)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{where}: the text holds a lone surrogate (half a character) at position {error.start + 1}.",
            remedy="Write characters beyond U+FFFF as themselves or as both halves of the escape.",
        ) from error
    return text
