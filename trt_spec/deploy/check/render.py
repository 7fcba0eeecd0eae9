"""Findings as lines for people and as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from trt_spec.deploy.check.finding import SEVERITIES
from trt_spec.deploy.check.fix import Change
from trt_spec.deploy.check.run import CheckReport
from trt_spec.util.text import encodable, printable

Paint = Callable[[str, str], str]  # text and severity -> text


def render_lines(report: CheckReport, paint: Paint) -> Iterator[str]:
    """Yield the report in lines: three for each finding, where and what, why, and what to do."""
    if report.version_reason:
        yield f"TensorRT-LLM {_sentence(report.version_reason)}"
    if report.trust:
        yield f"Templates: {_sentence(report.trust)}"
    for key, value in report.about.items():
        yield f"  {key}: {printable(str(value))}"
    for finding in report.findings:
        place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
        head = f"{printable(place)}: {paint(finding.severity, finding.severity)} [{finding.code}]"
        yield f"{head} {_sentence(finding.what)}"
        yield f"    why: {_sentence(finding.why)}"
        yield f"    do: {_sentence(finding.remedy)}"


def render_json(report: CheckReport, changes: Iterable[Change] | None = None) -> str:
    """Return the report as one JSON document; ``changes`` are those that --fix made, None without it."""
    document: dict[str, Any] = {
        "path": str(report.path),
        "kind": report.kind,
        "tensorrt_llm": report.version_reason,
        "templates": report.trust,
        "models": list(report.models),
        "engine": dict(report.about),
        "counts": {severity: report.count(severity) for severity in SEVERITIES},
        "findings": [asdict(finding) for finding in report.findings],
    }
    if changes is not None:
        document["fixed"] = [{"file": change.file, "diff": change.diff} for change in changes]
    return encodable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _sentence(text: str) -> str:
    return f"{printable(text).rstrip('.')}."
