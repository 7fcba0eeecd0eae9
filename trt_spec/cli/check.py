"""``trtspec check``: is what lies there whole, and will it work?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_spec.deploy.check.fix import Change
    from trt_spec.deploy.check.path_kind import PathKind
    from trt_spec.deploy.check.run import CheckReport
    from trt_spec.deploy.check.view import CheckOptions

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def _parse_mounts(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    pairs = [value.partition("=") for value in values]
    for container, _equals, here in pairs:
        if not container.startswith("/") or not here:
            raise click.BadParameter("expected CONTAINER=HERE, such as /models=./workspace/pair")
    return tuple((container, Path(here).absolute()) for container, _equals, here in pairs)


@click.command("check")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--tensorrt-llm", metavar="V", help="Version that it is meant for; found out if not given.")
@click.option("--image", help="Triton container that will serve it.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests that will be in flight.")
@click.option("--mount", "mounts", multiple=True, metavar="CONTAINER=HERE", callback=_parse_mounts, help="Repeatable.")
@click.option("--gpus", type=click.IntRange(min=0), help="GPUs that the server will see.")
@click.option("--trust-remote-code", is_flag=True, help="Tokenizers may bring code of their own.")
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("--fix", "is_fixing", is_flag=True, help="Correct what has exactly one right answer; shows the diff.")
@click.option("--json", "output", flag_value="json", help="Print one JSON document.")
@click.option("--sarif", "output", flag_value="sarif", help="Print SARIF 2.1.0, for code hosts.")
def command(
    path: Path,
    tensorrt_llm: str | None,
    image: str | None,
    concurrency: int | None,
    mounts: tuple[tuple[str, Path], ...],
    gpus: int | None,
    trust_remote_code: bool,
    strict: bool,
    is_fixing: bool,
    output: str | None,
) -> None:
    """Check a Triton model repository, an engine folder or a TensorRT-LLM checkpoint, whoever wrote it.

    Nothing is started or written, but for --fix. Exits with 4 if there are errors (with --strict: or warnings).
    """
    from trt_spec.deploy.check.fix import plan_changes, write_changes
    from trt_spec.deploy.check.path_kind import resolve_checked
    from trt_spec.deploy.check.view import CheckOptions

    options = CheckOptions(
        tensorrt_llm=tensorrt_llm,
        image=image,
        concurrency=concurrency,
        mounts=mounts,
        visible_gpus=gpus,
        trust_remote_code=trust_remote_code,
    )
    folder, kind = resolve_checked(path)
    report = _check(folder, kind, options)
    changes = None
    if is_fixing:
        changes = plan_changes(folder, report.findings)
        write_changes(changes)
        report = _check(folder, kind, options) if changes else report
        if output is None:
            click.echo("".join(change.diff for change in changes) or "Nothing to fix.", nl=not changes)
        elif output == "sarif":
            click.echo("".join(change.diff for change in changes) or "Nothing to fix.\n", err=True, nl=False)
    _print(report, output, changes)
    _judge(report, strict)


def _check(folder: Path, kind: PathKind, options: CheckOptions) -> CheckReport:
    from trt_spec.cli.progress import StepProgress
    from trt_spec.deploy.check.run import check_engine, check_repository

    if kind == "repository":
        return check_repository(folder, options)
    with StepProgress() as progress:
        return (
            check_engine(folder, options, progress.report)
            if kind == "engine"
            else _check_checkpoint(folder, progress.report)
        )


def _check_checkpoint(folder: Path, progress: Callable[[str, float | None], None]) -> CheckReport:
    """What `trtspec convert` checks of checkpoints, in the form of the other kinds."""
    from trt_spec.build.checkpoint.check import check_checkpoint
    from trt_spec.deploy.check.finding import CheckFinding
    from trt_spec.deploy.check.path_kind import CONFIG_FILE
    from trt_spec.deploy.check.run import CheckReport
    from trt_spec.errors import VerifyFailed

    try:
        checked = check_checkpoint(folder, progress)
    except VerifyFailed as error:
        why = "an engine built from it would be wrong, or not be built"
        finding = CheckFinding("checkpoint", "error", CONFIG_FILE, None, error.found, why, error.remedy)
        return CheckReport(folder, "checkpoint", (finding,))
    about = {key: value for key, value in vars(checked).items() if key != "folder"}
    about["contents"] = "every byte as written" if checked.has_digests else "not compared, there is no manifest"
    return CheckReport(folder, "checkpoint", (), about=about)


def _print(report: CheckReport, output: str | None, changes: list[Change] | None) -> None:
    from trt_spec.deploy.check.render import render_json, render_lines
    from trt_spec.deploy.check.sarif import render_sarif

    if output == "json":
        click.echo(render_json(report, changes), nl=False)
    elif output == "sarif":
        click.echo(render_sarif(report.path, report.findings), nl=False)
    else:
        colour = False if os.environ.get("NO_COLOR") else None
        for line in render_lines(report, lambda text, severity: click.style(text, fg=COLOURS[severity], bold=True)):
            click.echo(line, color=colour)


def _judge(report: CheckReport, strict: bool) -> None:
    from trt_spec.errors import VerifyFailed

    if report.count("error") or (strict and report.count("warning")):
        raise VerifyFailed(f"{report.path}: {report.summary}.", remedy="Every finding says what to do.")
    click.echo(f"{report.path}: {report.summary}.", err=True)
