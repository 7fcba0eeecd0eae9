"""The prompts that verify sends: ours by default, or the user's JSON Lines file in any layout of ``layouts``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.verify.workload.layouts import Turn, read_row, refuse_half_characters

DEFAULT_PROMPTS = Path(__file__).with_name("prompts.jsonl")

_REMEDY = (
    'Write one JSON object a line: {"text": "..."} (or "prompt"), optionally with "id" and "kind"; layouts of OpenAI '
    '("messages"), ShareGPT ("conversations") and AIPerf ("text", "turns", "text_input", "input_length") work too.'
)


@dataclass(frozen=True)
class Prompt:
    """One request of the workload: ``text`` is the user's last message, before any chat template.

    ``turns`` is the conversation up to it, empty for a lone message. ``output_tokens``, ``timestamp_s`` and, for a
    trace without texts, ``input_tokens`` are what the file says of this request. ``core`` marks the few of ours that
    stand for all where time is short.
    """

    id: str
    kind: str
    text: str
    turns: tuple[Turn, ...] = ()
    output_tokens: int | None = None
    input_tokens: int | None = None
    timestamp_s: float | None = None
    core: bool = False


def load_prompts(path: Path | None = None, *, whole: bool = False) -> tuple[Prompt, ...]:
    """Prompts of a JSON Lines file, or ours: the core of them, or the ``whole`` set. Blank lines are skipped.

    Raises SpecError with the line number for anything that is in none of the layouts.
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
        if path or whole or prompt.core:
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
    try:
        content = read_row(row)
        refuse_half_characters(content.text, content.turns)
    except ValueError as error:
        raise SpecError(f"{where}: {error}", remedy=_REMEDY) from error
    default_id = str(row.get("custom_id") or default_id)
    return Prompt(
        id=_parse_label(row, "id", default_id, where),
        kind=_parse_label(row, "kind", "user", where),
        text=content.text,
        turns=content.turns,
        output_tokens=content.output_tokens,
        input_tokens=content.input_tokens,
        timestamp_s=content.timestamp_s,
        core=row.get("core") is True,
    )


def _parse_label(row: dict[str, Any], key: str, default: str, where: str) -> str:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise SpecError(f"{where}: {key!r} must be a word or a whole number, found {value!r}.", remedy=_REMEDY)
    return str(value)
