"""The measured draft length and acceptance, written into the text of a spec. Comments stay. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import yaml

from trt_spec.errors import StepFailed
from trt_spec.verify.bench.assemble import points_under_load
from trt_spec.verify.bench.results import BenchReport

_SECTION = "speculation"


def tuning_of(report: BenchReport) -> dict[str, int | float]:
    """Values for the spec's speculation section: the longest recommended length and alpha of one request at a time.

    The longest, because a deployment may draft fewer at a higher load but never more. Raises StepFailed where no
    acceptance was measured.
    """
    alone = [point for point in points_under_load(report.points, 1) if point.load.acceptance]
    if not alone:
        raise StepFailed(
            "No acceptance was measured with one request at a time, so there is nothing to tune by.",
            remedy="Run `trtspec bench SPEC --sweep draft_len --write-tuning` to its end.",
        )
    longest = max(alone, key=lambda point: point.setting.num_draft_tokens or 0)
    assert longest.load.acceptance is not None
    values: dict[str, int | float] = {}
    lengths = [item.num_draft_tokens for item in report.recommendations]
    if any(lengths):
        values["max_draft_len"] = max(lengths)
    if longest.load.acceptance.alpha is not None:
        values["acceptance"] = round(longest.load.acceptance.alpha, 3)
    return values


def edit_spec(text: str, values: dict[str, int | float]) -> str:
    """The spec's text with these values in its speculation section. Raises StepFailed for a layout it cannot edit."""
    edited = text
    for key, value in values.items():
        edited = _set(edited, key, value)
    expected = yaml.safe_load(text) or {}
    expected[_SECTION] = {**(expected.get(_SECTION) or {}), **values}
    try:
        found = yaml.safe_load(edited)
    except yaml.YAMLError:
        found = None
    if found != expected:
        listed = ", ".join(f"{key}: {value}" for key, value in values.items())
        raise StepFailed(
            f"The spec's {_SECTION} section has a layout that cannot be edited.", remedy=f"Write into it: {listed}."
        )
    return edited


def _set(text: str, key: str, value: int | float) -> str:
    lines = text.splitlines(keepends=True)
    head = next((i for i, line in enumerate(lines) if re.match(rf"{_SECTION}\s*:", line)), None)
    if head is None:
        tail = "" if text.endswith("\n") or not text else "\n"
        return f"{text}{tail}{_SECTION}:\n  {key}: {value}\n"
    if "{" in lines[head].partition("#")[0]:
        return _set_in_braces(lines, head, key, value)
    end = next(
        (i for i in range(head + 1, len(lines)) if lines[i].strip() and not lines[i].startswith((" ", "#"))), len(lines)
    )
    for index in range(head + 1, end):
        if match := re.match(rf"(\s+{key}\s*:\s*)[^\s#]+(.*)", lines[index], re.DOTALL):
            lines[index] = f"{match[1]}{value}{match[2]}"
            return "".join(lines)
    first = next((line for line in lines[head + 1 : end] if line.strip() and not line.lstrip().startswith("#")), "  ")
    indent = first[: len(first) - len(first.lstrip())] or "  "
    lines.insert(head + 1, f"{indent}{key}: {value}\n")
    return "".join(lines)


def _set_in_braces(lines: Sequence[str], head: int, key: str, value: int | float) -> str:
    line = lines[head]
    changed = re.sub(rf"(\b{key}\s*:\s*)[^,}}\s]+", rf"\g<1>{value}", line, count=1)
    if changed == line and f"{key}:" not in line:
        changed = line.replace("{", f"{{{key}: {value}, ", 1)
    return "".join([*lines[:head], changed, *lines[head + 1 :]])


def render_patch(old: str, new: str, name: str) -> str:
    """A unified diff that ``patch`` takes; empty when nothing changes."""
    return "".join(difflib.unified_diff(_ended(old), _ended(new), name, name))


def _ended(text: str) -> list[str]:
    return (text if text.endswith("\n") or not text else text + "\n").splitlines(keepends=True)
