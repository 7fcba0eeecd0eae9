from pathlib import Path

from trt_spec.verify.conformance.page import render_page
from trt_spec.verify.conformance.rows import ROWS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "conformance.md"


def test_the_committed_page_is_the_tables():
    command = f"python -m trt_spec.verify.conformance.page > {PAGE.name}"
    assert PAGE.read_text(encoding="utf-8") == render_page(), f"in docs/reference, run: {command}"


def test_every_row_has_its_section():
    assert [line[4:] for line in render_page().splitlines() if line.startswith("### ")] == [row.id for row in ROWS]
