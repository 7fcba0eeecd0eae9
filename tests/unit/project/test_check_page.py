"""docs/reference/check.md against the source: every code that `trtspec check` can print, its severities and its fix.

The codes are read from the calls that make findings. Most go through small functions that take the code as an argument,
so a call is followed into those until it reaches one that makes the finding.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.deploy.check.finding import SEVERITIES, CheckFinding
from trt_spec.deploy.check.rules import report
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.plan.llmapi_dialect import DATA_PATH, load_llmapi_dialects
from trt_spec.plan.llmapi_dialect import _load_data as load_llmapi_data

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "check.md").read_text(encoding="utf-8")
SOURCES = (*sorted((ROOT / "trt_spec/deploy/check").rglob("*.py")), ROOT / "trt_spec/cli/check.py")
MAKERS = {maker.__name__: list(inspect.signature(maker).parameters) for maker in (CheckFinding, report.found, report.found_parameter)}
