"""``trtspec check``: is what lies there whole, and will it work?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from trt_spec.deploy.check.options import CheckOptions
    from trt_spec.deploy.check.path_kind import PathKind
    from trt_spec.deploy.check.run import CheckReport


def _parse_mounts(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    pairs = [value.partition("=") for value in values]
    for container, _equals, here in pairs:
        if not container.startswith("/") or not here:
            raise click.BadParameter("expected CONTAINER=HERE, such as /models=./workspace/pair")
    return tuple((container, Path(here).absolute()) for container, _equals, here in pairs)


@click.command("check")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--tensorrt-llm", metavar="V|IMAGE", help="Version or container that it is for; found out if not given.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests that will be in flight.")
@click.option("--mount", "mounts", multiple=True, metavar="CONTAINER=HERE", callback=_parse_mounts, help="Repeatable.")
@click.option("--gpus", metavar="GPUS", help="GPUs that the server will see: 8, H200 or 8xH200.")
@click.option("--trust-remote-code", is_flag=True, help="Tokenizers may bring code of their own.")
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("--fix", "is_fixing", is_flag=True, help="Correct what has exactly one right answer; shows the diff.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
@click.option("--sarif", "is_sarif", is_flag=True, help="Print SARIF 2.1.0, for code hosts.")
def command(
    path: Path, gpus: str | None, strict: bool, is_fixing: bool, is_json: bool, is_sarif: bool, **options: Any
) -> None:
    """Check a Triton model repository, an engine folder or a TensorRT-LLM checkpoint, whoever wrote it.

    Nothing is started or written, but for --fix. Exits with 4 if there are errors (with --strict: or warnings).
    """
    from trt_spec.cli.check_output import print_diff, print_report
    from trt_spec.deploy.check.fix import plan_changes, write_changes
    from trt_spec.deploy.check.options import CheckOptions, parse_gpus
    from trt_spec.deploy.check.path_kind import resolve_checked
    from trt_spec.errors import VerifyFailed

    if is_json and is_sarif:
        raise click.UsageError("--json and --sarif are two outputs: choose one.")
    output = "json" if is_json else "sarif" if is_sarif else None
    count, compute_capability = (None, None) if gpus is None else parse_gpus(gpus)
    wanted = CheckOptions(visible_gpus=count, compute_capability=compute_capability, **options)
    folder, kind = resolve_checked(path)
    report = _inspect(folder, kind, wanted)
    changes = plan_changes(folder, report.findings) if is_fixing else None
    if changes is not None:
        print_diff(changes, output)  # before anything is written
    if changes:
        write_changes(changes)
        report = _inspect(folder, kind, wanted)
    print_report(report, output, changes)
    if report.count("error") or (strict and report.count("warning")):
        raise VerifyFailed(f"{report.path}: {report.summary}.", remedy="Every finding says what to do.")
    click.echo(f"{report.path}: {report.summary}.", err=True)


def _inspect(folder: Path, kind: PathKind, options: CheckOptions) -> CheckReport:
    from trt_spec.cli.progress import StepProgress
    from trt_spec.deploy.check.run import inspect_engine, inspect_repository

    if kind == "repository":
        return inspect_repository(folder, options)
    with StepProgress() as progress:
        if kind == "engine":
            return inspect_engine(folder, options, progress.report)
        from trt_spec.cli.check_checkpoint import inspect_checkpoint

        return inspect_checkpoint(folder, progress.report)
