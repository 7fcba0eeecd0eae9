"""What ``trtspec check`` prints: lines, one JSON document or SARIF, and the diff of ``--fix``."""

from __future__ import annotations

import os

import click

from trt_spec.deploy.check.fix import Change
from trt_spec.deploy.check.render import render_json, render_lines
from trt_spec.deploy.check.run import CheckReport
from trt_spec.deploy.check.sarif import render_sarif
from trt_spec.util.text import printable

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def print_diff(changes: list[Change], output: str | None) -> None:
    """Print what --fix is about to write; SARIF has no place for it, so it goes to stderr, and JSON holds it itself."""
    if output == "json":
        return
    diff = "".join(change.diff for change in changes) or "Nothing to fix.\n"
    lines = (printable(line.rstrip("\r").replace("\t", "    ")) for line in diff.split("\n"))
    click.echo("\n".join(lines), nl=False, err=output == "sarif")


def print_report(report: CheckReport, output: str | None, changes: list[Change] | None) -> None:
    """Print a report in the form ``output``: "json", "sarif" or None for people.

    ``changes`` are those of --fix, which a JSON document holds; None without it.
    """
    if output == "json":
        click.echo(render_json(report, changes), nl=False)
        return
    if output == "sarif":
        click.echo(render_sarif(report.path, report.findings), nl=False)
        return
    colour = False if os.environ.get("NO_COLOR") else None
    for line in render_lines(report, lambda text, severity: click.style(text, fg=COLOURS[severity], bold=True)):
        click.echo(line, color=colour)
