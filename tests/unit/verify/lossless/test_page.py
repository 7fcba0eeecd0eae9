"""The reference page names every fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from trt_spec.verify.lossless.faults import WORDS, FaultName

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "verify.md"


def test_every_fault_is_on_the_page_and_has_words():
    table = PAGE.read_text(encoding="utf-8").split("## How they are found")[0]
    assert set(re.findall(r"`([a-z_]+)`", table)) - {"not_strict"} >= set(get_args(FaultName)) - {"not_strict"}
    assert "not_strict" in table and set(WORDS) == set(get_args(FaultName))
