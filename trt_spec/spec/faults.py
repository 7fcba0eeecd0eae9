"""Faults of a spec in plain words: from pydantic's error records to what was found and what was expected.

Also decides which cross-field rules can still be judged when single fields are wrong, so that one run lists all.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trt_spec.spec.medusa import fill_draft_len
from trt_spec.spec.model import PATTERN_WORDS, Role, Spec
from trt_spec.spec.rules import BrokenRulesError, Fault, KeyPath, UnjudgedError, judge_spec
from trt_spec.util.text import printable

_MAX_SHOWN_CHARACTERS = 60
_EXPECTED = {
    "string_type": "text",
    "string_unicode": "text without broken Unicode characters",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "float_type": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
}
# Why a value that other tools know is none of the choices: (key, value) -> reason.
_REASONS = {
    ("kv_cache_dtype", "int8"): "draft-target needs KV cache reuse, and TensorRT-LLM has no kernels for it on INT8",
}
# Pydantic's limits: error type -> (key of the limit, words before it, words after it).
_BOUNDS = {
    "greater_than_equal": ("ge", "at least", ""),
    "less_than_equal": ("le", "at most", ""),
    "too_short": ("min_length", "at least", " item(s)"),
    "string_too_short": ("min_length", "at least", " character(s)"),
    "string_too_long": ("max_length", "at most", " characters"),
}


def quote(text: str) -> str:
    """``text`` in double quotes, shortened, with unprintable characters escaped."""
    shown = text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 3] + "..."
    return f'"{printable(shown)}"'


def judge_values(data: Mapping[str, Any]) -> tuple[Spec | None, tuple[Fault, ...]]:
    """``data`` as a Spec, or None with every fault: of single fields, and of rules over fields that are sound."""
    try:
        return Spec.model_validate(data), ()
    except ValidationError as error:
        return None, _faults_of(error, data)


def _faults_of(error: ValidationError, data: Mapping[str, Any]) -> tuple[Fault, ...]:
    words: dict[KeyPath, list[str]] = {}
    unsound: set[KeyPath] = set()
    for record in error.errors(include_url=False):
        breach = record.get("ctx", {}).get("error")
        if isinstance(breach, BrokenRulesError):
            return breach.faults  # pydantic judges rules only once every field is sound
        path = _path_in(data, record)
        unsound.add(path)
        if record["type"] == "extra_forbidden":
            message, meant = _unknown_key(path)
            unsound.update(meant)
        else:
            message = _message_of(record)
        words.setdefault(path, []).append(message)
    fields = [Fault(path, _join_alternatives(messages)) for path, messages in words.items()]
    filled = {**data, "speculation": fill_draft_len(data["speculation"])} if "speculation" in data else data
    incomplete = cast("Spec", _Incomplete(Spec, filled, (), frozenset(unsound)))
    return (*fields, *judge_spec(incomplete))


def _path_in(data: Any, record: ErrorDetails) -> KeyPath:
    """The part of pydantic's location that exists in the file (it appends union members and "[key]")."""
    path: list[str | int] = []
    for part in record["loc"]:
        missing_here = record["type"] == "missing" and part == record["loc"][-1]
        inside = isinstance(data, dict) and part in data
        inside = inside or (isinstance(data, list | tuple) and isinstance(part, int) and part < len(data))
        if not inside and not missing_here:
            break
        path.append(part)
        data = data[part] if inside else None
    return tuple(path)


def _join_alternatives(messages: list[str]) -> str:
    """A value that fits no member of a union has one message for each; say "found" once and list what would do."""
    found, _, first = messages[0].partition(", expected ")
    expected = [first, *(message.partition(", expected ")[2] for message in messages[1:])]
    return f"{found}, expected {' or '.join(dict.fromkeys(expected))}" if len(messages) > 1 else messages[0]


def _message_of(record: ErrorDetails) -> str:
    kind, context, found = record["type"], record.get("ctx", {}), record["input"]
    if record["loc"][-1] == "[key]":
        return _bad_key(str(found), context)
    if kind == "missing":
        return f"missing, expected {_choices_or_kind(_annotation_at(record['loc']))}"
    if kind == "literal_error":
        choices = [str(choice) for choice in get_args(_annotation_at(record["loc"]))]
        reason = _REASONS.get((str(record["loc"][-1]), str(found)), "")
        because = f": {reason}" if reason else ""
        return f"found {_shown(found)}, {_did_you_mean(found, choices)}expected {_listed(choices)}{because}"
    if kind in ("model_type", "dict_type"):
        section = _section_at(record["loc"])
        keys = f" with keys such as {', '.join(list(section.model_fields)[:3])}" if section else ""
        return f"found {_shown(found)}, expected a section{keys}"
    if kind == "string_pattern_mismatch":
        return f"found {_shown(found)}, expected {PATTERN_WORDS[str(context['pattern'])]}"
    if kind in _BOUNDS:
        key, before, after = _BOUNDS[kind]
        return f"found {_shown(found)}, expected {before} {context[key]}{after}"
    quotes = " (put it in quotes)" if kind == "string_type" and isinstance(found, bool | int | float) else ""
    return f"found {_shown(found)}, expected {_EXPECTED.get(kind, record['msg'])}{quotes}"


def _bad_key(key: str, context: Mapping[str, Any]) -> str:
    if "pattern" in context:
        return f"unknown key, expected {PATTERN_WORDS[str(context['pattern'])]}"
    roles = list(get_args(Role))
    return f"unknown key, {_did_you_mean(key, roles)}expected {_listed(roles)}"


def _unknown_key(path: KeyPath) -> tuple[str, set[KeyPath]]:
    """Message for an unknown key, and the paths its value may have been meant for."""
    key, section = str(path[-1]), _section_at(path[:-1])
    known = list(section.model_fields) if section else []
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"unknown key, did you mean {quote(close[0])}?", {(*path[:-1], close[0])}
    sections: list[KeyPath] = [(), *((name,) for name in Spec.model_fields)]
    homes = [home for home in sections if key in getattr(_section_at(home), "model_fields", {})]
    expected = f"expected one of {', '.join(known)}"
    if not homes:
        return f"unknown key, {expected}", set()
    places = " or ".join(str(home[0]) if home else "the top level" for home in homes)
    return f"unknown key here, it belongs under {places}; {expected}", {(*home, key) for home in homes}


def _did_you_mean(found: Any, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(found).lower(), choices, n=1) if isinstance(found, str) else []
    return f"did you mean {quote(close[0])}? " if close else ""


def _listed(choices: list[str]) -> str:
    return f"one of {', '.join(choices)}"


def _shown(value: Any) -> str:
    """A value from the file in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a list" if isinstance(value, list | tuple) else "a section"


def _choices_or_kind(annotation: Any) -> str:
    choices = [str(choice) for choice in get_args(annotation) if isinstance(choice, str)]
    if choices:
        return _listed(choices)
    return {int: "a whole number", str: "text", bool: "true or false"}.get(annotation, "a section")


def _section_at(path: Iterable[str | int]) -> type[BaseModel] | None:
    annotation = _annotation_at(path)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _annotation_at(path: Iterable[str | int]) -> Any:
    """The type at a key path of Spec, without Annotated and Optional; None outside the sections."""
    annotation: Any = Spec
    for part in path:
        fields = getattr(annotation, "model_fields", None)
        if fields is None or part not in fields:
            return None
        annotation = _bare(fields[part].annotation)
    return annotation


def _bare(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return _bare(members[0]) if len(members) == 1 else annotation
    return annotation


class _Incomplete:
    """Reads like a Spec (or a section of one) made of the sound fields of ``data``; the others raise UnjudgedError."""

    def __init__(
        self, model: type[BaseModel], data: Mapping[str, Any], path: KeyPath, unsound: frozenset[KeyPath]
    ) -> None:
        self._model, self._data, self._path, self._unsound = model, data, path, unsound

    def __getattr__(self, name: str) -> Any:
        path = (*self._path, name)
        if path in self._unsound:
            raise UnjudgedError(name)
        section = _section_at(path)
        value = self._data[name] if name in self._data else self._model.model_fields[name].get_default()
        if section is not None and value is not None:
            return _Incomplete(section, value if isinstance(value, dict) else {}, path, self._unsound)
        if any(bad[: len(path)] == path for bad in self._unsound):
            raise UnjudgedError(name)  # a list with a fault inside, or a section whose keys stand elsewhere
        return value
