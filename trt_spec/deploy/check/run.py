"""`trtspec check` of a repository or an engine folder: what lies there is read once, then every rule has a look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trt_spec.deploy.check.engine_config import is_tensorrt
from trt_spec.deploy.check.engine_files import Progress
from trt_spec.deploy.check.engine_folder import inspect_engine_folder
from trt_spec.deploy.check.finding import SEVERITIES, CheckFinding, CheckSeverity
from trt_spec.deploy.check.load import load_repository
from trt_spec.deploy.check.options import CheckOptions, complete_gpus
from trt_spec.deploy.check.path_kind import PathKind
from trt_spec.deploy.check.reading import shorten
from trt_spec.deploy.check.rules import RULES

_MAX_ALIKE = 100  # findings of one code in one file
_MAX_CHARACTERS = 2000  # of a sentence


@dataclass(frozen=True)
class CheckReport:
    """What was checked and found, faults first by file and line. ``about`` holds what an engine says of itself."""

    path: Path
    kind: PathKind
    findings: tuple[CheckFinding, ...]
    version_reason: str = ""
    trust: str = ""
    models: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def count(self, severity: CheckSeverity) -> int:
        """Return the number of findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def summary(self) -> str:
        """The counts in words: "2 errors, 1 warning"."""
        counts = [(self.count(severity), severity) for severity in SEVERITIES]
        said = [f"{count} {severity}{'s' if count != 1 else ''}" for count, severity in counts if count]
        return ", ".join(said) or "no findings"


def inspect_repository(root: Path, options: CheckOptions) -> CheckReport:
    """Read a model repository and judge it by every rule.

    Raises SpecError for a folder that cannot be listed and a stated version without templates, EnvironmentMissing
    without tritonclient. Any other fault is a finding.
    """
    view, findings = load_repository(root, options)
    for rule in RULES:
        findings += rule(view)
    return CheckReport(
        path=root,
        kind="repository",
        findings=_sort(findings),
        version_reason=view.version_reason,
        trust=view.dialect.trust,
        models=tuple(view.models),
    )


def inspect_engine(folder: Path, options: CheckOptions, report: Progress) -> CheckReport:
    """Read an engine folder and judge it; ``report`` hears of the files being read."""
    about, findings = inspect_engine_folder(folder, complete_gpus(options, folder), report)
    version = about.get("version")
    return CheckReport(
        path=folder,
        kind="engine",
        findings=_sort(findings),
        version_reason=f"{version}, as config.json says" if version and is_tensorrt(about) else "",
        about=about,
    )


def _sort(findings: Iterable[CheckFinding]) -> tuple[CheckFinding, ...]:
    """By file and line, whole files last, errors first on a line; what two rules say alike is said once."""
    order = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    rows = [_cut(row) for row in dict.fromkeys(findings)]

    def place(row: CheckFinding) -> tuple[str, bool, int, int, str, str]:
        return row.file, row.line is None, row.line or 0, order[row.severity], row.code, row.what

    groups: dict[tuple[str, str], list[CheckFinding]] = {}
    for row in sorted(rows, key=place):
        groups.setdefault((row.file, row.code), []).append(row)
    told = [row for group in groups.values() for row in group[:_MAX_ALIKE]]
    told += [_fold(group) for group in groups.values() if len(group) > _MAX_ALIKE]
    return tuple(sorted(told, key=place))


def _fold(group: list[CheckFinding]) -> CheckFinding:
    """What stands for the rest of very many findings of one kind in one file, with the worst of their severities."""
    worst = min(group, key=lambda row: SEVERITIES.index(row.severity))
    what = f"{len(group) - _MAX_ALIKE} more findings [{worst.code}] in {worst.file}"
    return replace(worst, line=None, what=what, fix=None)


def _cut(row: CheckFinding) -> CheckFinding:
    """Names and values of strangers may be as long as their files."""
    if max(len(row.what), len(row.why), len(row.remedy)) <= _MAX_CHARACTERS:
        return row
    what, why, remedy = (shorten(text, _MAX_CHARACTERS) for text in (row.what, row.why, row.remedy))
    return replace(row, what=what, why=why, remedy=remedy)
