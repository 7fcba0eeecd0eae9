"""Findings as SARIF 2.1.0, which code hosts show beside the lines.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trt_spec import __version__
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.util.text import encodable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render_sarif(root: Path, findings: Iterable[CheckFinding]) -> str:
    """Return the SARIF document of findings whose files count from ``root``.

    Below the current folder paths are relative to it, as code hosts want them; elsewhere they are absolute.
    """
    rows = list(findings)
    codes = sorted({finding.code for finding in rows})
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "trtspec", "version": __version__, "rules": [{"id": code} for code in codes]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(root, finding, codes.index(finding.code)) for finding in rows],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return encodable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _result(root: Path, finding: CheckFinding, index: int) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(root, finding.file)}}
    if finding.line is not None:
        location["region"] = {"startLine": finding.line}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{finding.what}: {finding.why}. {finding.remedy}"},
        "locations": [{"physicalLocation": location}],
    }


def _uri(root: Path, file: str) -> str:
    path, here = root.absolute() / file, Path.cwd()
    if path.is_relative_to(here):
        return quote(encodable(path.relative_to(here).as_posix()))
    return "file://" + quote(encodable(path.as_posix()))
