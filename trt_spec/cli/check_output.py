"""What ``trtspec check`` prints: lines, one JSON document or SARIF, and the diff of ``--fix``."""

from __future__ import annotations

import os

import click

from trt_spec.deploy.check.fix import Change
from trt_spec.deploy.check.render import render_json, render_lines
from trt_spec.deploy.check.run import CheckReport
from trt_spec.deploy.check.sarif import render_sarif

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def print_report(report: CheckReport, output: str | None, changes: list[Change] | None) -> None:
    """Print a report in the form ``output``: "json", "sarif" or None for people.

    ``changes`` are those of --fix, None without it. SARIF has no place for them, so they go to stderr.
    """
    diff = None if changes is None else "".join(change.diff for change in changes) or "Nothing to fix.\n"
    if output == "json":
        click.echo(render_json(report, changes), nl=False)
        return
    if diff is not None:
        click.echo(diff, nl=False, err=output == "sarif")
    if output == "sarif":
        click.echo(render_sarif(report.path, report.findings), nl=False)
        return
    colour = False if os.environ.get("NO_COLOR") else None
    for line in render_lines(report, lambda text, severity: click.style(text, fg=COLOURS[severity], bold=True)):
        click.echo(line, color=colour)
