"""`--fix`: the findings that have exactly one right answer, as a unified diff and into the files."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.reading import MAX_CONFIG_BYTES, read_text
from trt_spec.util.files import write_text_atomic


@dataclass(frozen=True)
class Change:
    """One file before and after; ``path`` is where it lies, links resolved."""

    file: str
    path: Path
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        rows = difflib.unified_diff(
            _split(self.before), _split(self.after), f"a/{self.file}", f"b/{self.file}", lineterm="\n"
        )
        return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def plan_changes(root: Path, findings: Iterable[CheckFinding]) -> list[Change]:
    """Return what the fixes make of the files below ``root``; nothing is written.

    Of two fixes for one line the first wins. A file that leads out of ``root`` or cannot be read is left alone.
    """
    by_file: dict[str, dict[int, str]] = {}
    for finding in findings:
        if finding.fix is not None:
            by_file.setdefault(finding.file, {}).setdefault(finding.fix.line, finding.fix.after)
    changes = []
    for file, lines in sorted(by_file.items()):
        path = (root / file).resolve()
        text, fault = read_text(path, MAX_CONFIG_BYTES)
        if fault or not path.is_relative_to(root.resolve()):
            continue
        after = _replace(text, lines)
        if after != text:
            changes.append(Change(file, path, text, after))
    return changes


def write_changes(changes: Iterable[Change]) -> None:
    """Write every change, each file at once and with the mode it had. Raises OSError."""
    for change in changes:
        mode = change.path.stat().st_mode
        write_text_atomic(change.path, change.after)
        change.path.chmod(mode & 0o7777)


def _replace(text: str, lines: dict[int, str]) -> str:
    rows = _split(text)
    for number, after in lines.items():
        if 1 <= number <= len(rows):
            row = rows[number - 1]
            rows[number - 1] = after + row[len(row.rstrip("\r\n")) :]
    return "".join(rows)


def _split(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one, as protobuf counts."""
    rows = text.split("\n")
    return [f"{row}\n" for row in rows[:-1]] + ([rows[-1]] if rows[-1] else [])
