"""A report as a page, as Markdown and as JSON, written side by side into one folder."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from trt_spec.util.files import write_text_atomic
from trt_spec.verify.bench.figures import describe_prediction, draw_plots
from trt_spec.verify.bench.results import BenchReport
from trt_spec.verify.bench.tables import Table, tabulate
from trt_spec.verify.results import to_json

if TYPE_CHECKING:
    from rich.console import Console

HTML_FILE, JSON_FILE, MARKDOWN_FILE = "bench.html", "bench.json", "bench.md"
_TERMINAL_COLUMNS = ("system", "drafted", "at once", "prompt", "temp.", "tokens/s", "speed-up", "predicted", "alpha")
_TEMPLATE = Path(__file__).with_name("page.html.j2")


def write_bench(report: BenchReport, folder: Path) -> None:
    """bench.html, bench.json and bench.md in ``folder``, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomic(folder / JSON_FILE, to_json(report))
    write_text_atomic(folder / MARKDOWN_FILE, render_markdown(report))
    write_text_atomic(folder / HTML_FILE, render_html(report))


def render_html(report: BenchReport) -> str:
    """One page that loads nothing."""
    from jinja2 import Environment

    page = Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return page.render(
        report=report,
        pays=any(item.num_draft_tokens for item in report.recommendations),
        prediction=describe_prediction(report),
        plots=draw_plots(report),
        tables=tabulate(report),
        conditions=describe_conditions(report),
        spec=yaml.safe_dump(report.conditions.spec, sort_keys=False, allow_unicode=True),
        counters=json.dumps(report.server_metrics.counters, indent=1) or report.server_metrics.missing,
    )


def render_markdown(report: BenchReport) -> str:
    """For a pull request: the verdict, tables and conditions."""
    name = _escape(str(report.conditions.spec.get("name", "")))
    lines = [f"## {name}: speculation under load", "", f"**{report.verdict}**", ""]
    if prediction := describe_prediction(report):
        lines += [prediction, ""]
    for table in tabulate(report):
        lines += [f"### {table.title}", "", *_markdown_rows(table), ""]
    lines += [f"- {note}" for note in report.notes]
    lines += ["", "<details><summary>Conditions</summary>", ""]
    lines += [f"- {name}: {_escape(value)}" for name, value in describe_conditions(report)]
    return "\n".join([*lines, "", "</details>", ""])


def _markdown_rows(table: Table) -> list[str]:
    rows = [table.columns, ("---:",) * len(table.columns), *table.rows]
    return ["| " + " | ".join(cell if "---" in cell else _escape(cell) for cell in row) + " |" for row in rows]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def describe_conditions(report: BenchReport) -> list[tuple[str, str]]:
    """Where and how it was measured, by name."""
    made, machine = report.conditions, report.machine
    load = "-" if machine is None or machine.cpu_fraction is None else f"{machine.cpu_fraction:.0%} busy"
    clocks = ", ".join(map(str, machine.gpu_clock_mhz)) if machine and machine.gpu_clock_mhz else ""
    rows = [
        ("date", made.date),
        ("took", f"{report.seconds:.0f} s{', ended early' if report.interrupted else ''}"),
        ("command", made.command),
        ("commit", made.commit),
        ("server", made.server),
        ("versions", ", ".join(f"{name} {version}" for name, version in made.versions.items())),
        ("processor", f"{made.cpu}, {made.cores} cores, {load}"),
        ("GPUs", made.gpus + (f", clocks {clocks} MHz" if clocks else "")),
        *(("system", f"{name}: {text}") for name, text in made.systems.items()),
        ("prompts", made.prompts),
        ("answers", f"{made.output_tokens} tokens at most, {made.requests} or more requests a setting and block"),
        ("seed", str(made.seed)),
        ("blocks planned", f"{made.planned_blocks}" + (f" within {made.budget_s:.0f} s" if made.budget_s else "")),
    ]
    return [(name, value) for name, value in rows if value]


def print_bench(report: BenchReport, console: Console) -> None:
    """The verdict and the recommended lengths; the rest is in the files."""
    console.print(report.verdict, highlight=False, markup=False)
    for table in tabulate(report):
        print_table(table, console, _TERMINAL_COLUMNS)
    for note in report.notes:
        console.print(note, highlight=False, markup=False)


def print_table(table: Table, console: Console, columns: Collection[str] = ()) -> None:
    """One table for the terminal; of a wide one, those of ``columns`` that differ between its rows."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left")
    kept = list(range(len(table.columns)))
    if len(kept) > len(columns) > 0:
        kept = [i for i in kept if table.columns[i] in columns and len({row[i] for row in table.rows}) > 1] or [0]
    for index in kept:
        shown.add_column(table.columns[index], justify="right" if index else "left")
    for row in table.rows:
        shown.add_row(*(escape(row[index]) for index in kept))
    console.print(shown)
