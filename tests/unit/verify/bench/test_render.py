"""The report as page, Markdown and JSON; the page in a browser is in test_page.py."""

import json
import re
from dataclasses import replace

import jsonschema
import pytest

from trt_spec.verify.bench.render import render_html, render_markdown, write_bench
from trt_spec.verify.bench.schema import FOLDER, SCHEMA_PATH, render_schema
from trt_spec.verify.bench.settings import Sweeps
from trt_spec.verify.bench.tables import tabulate
from trt_spec.verify.results import to_json


def test_the_committed_schema_is_current():
    assert FOLDER.list_stale({SCHEMA_PATH.name: render_schema().encode()}) == []


@pytest.mark.parametrize("fields", [{}, {"interrupted": True}, {"points": (), "recommendations": (), "steps": ()}])
def test_reports_keep_to_their_schema(make_report, fields):
    jsonschema.validate(json.loads(to_json(make_report(**fields))), json.loads(SCHEMA_PATH.read_text()))


def test_a_broken_report_does_not(make_report):
    document = json.loads(to_json(make_report()))
    del document["points"][0]["load"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(SCHEMA_PATH.read_text()))


def test_the_page_refers_to_nothing_outside(make_report):
    page = render_html(make_report())
    # xmlns names are addresses that nobody fetches.
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page.replace("xlink:href", "href"))
    assert "@import" not in page
    assert "url(http" not in page


def test_words_of_the_user_are_escaped(make_report):
    page = render_html(make_report())
    assert "tiny &lt;b&gt;pair&lt;/b&gt;" in page
    assert "<b>pair" not in page
    assert "&lt;b>pair" in render_markdown(make_report())


def test_ids_of_the_plots_do_not_meet(make_report):
    ids = re.findall(r'\bid="([^"]+)"', render_html(make_report()))
    assert len(ids) == len(set(ids))


def test_a_report_without_points_has_its_five_plots_too(make_report):
    page = render_html(make_report(points=(), recommendations=(), steps=(), break_even_concurrency=None))
    assert page.count("<svg") == 5
    assert page.count("not measured") >= 5


def test_lost_requests_are_shown(make_report, load_of):
    report = make_report()
    lost = replace(report.points[0], load=replace(report.points[0].load, requests=21))
    table = next(t for t in tabulate(replace(report, points=(lost,))) if t.title == "Draft length")
    assert table.rows[0][table.columns.index("not answered")] == "3"  # of 18 answers in 3 blocks


def test_rows_of_one_load_stand_together_by_draft_length(make_report):
    table = next(table for table in tabulate(make_report()) if table.title == "Concurrency")
    rows = [(int(row[2]), int(row[1])) for row in table.rows]
    assert rows == sorted(rows)


def test_markdown_tables_are_whole(make_report):
    text = render_markdown(make_report())
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) > 20
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1


def test_only_sweeps_that_ran_have_a_table(make_report):
    titles = [table.title for table in tabulate(make_report(sweeps=Sweeps((0, 2))))]
    assert titles == ["Recommended draft length", "Draft length", "Step times"]


def test_three_files_are_written(make_report, tmp_path):
    write_bench(make_report(), tmp_path / "a" / "b")
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["bench.html", "bench.json", "bench.md"]
