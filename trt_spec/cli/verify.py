"""``trtspec verify``: prove that speculation is lossless, accepted and faster."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from trt_spec.verify.run import VerifyOptions

_FOLDER = click.Path(file_okay=False, path_type=Path)


def _seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """A number above 0, or ``none``: to wait for ever."""
    if value is None:
        return None
    try:
        seconds = math.inf if value == "none" else float(value)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise click.BadParameter(f"{value!r} is neither a number of seconds above 0 nor none.")
    return seconds


@click.command("verify")
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--url",
    help="A running server instead of a spec: HOST:PORT of Triton's gRPC, or an HTTP address of Triton or, with /v1, "
    "of an OpenAI-compatible server.",
)
@click.option("--model", help="Model name, for servers that trtspec did not deploy.")
@click.option("-o", "--workspace", type=_FOLDER, help="Folder that build wrote to.")
@click.option(
    "--prompts", "prompts_path", type=click.Path(path_type=Path), help='JSON Lines file: {"text": "..."} a line.'
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens to generate per prompt.  [default: 96]")
@click.option(
    "--report",
    "report_folder",
    type=_FOLDER,
    help="Folder for report.json and report.md.  [default: WORKSPACE/reports]",
)
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="File for the verdicts as JUnit XML.")
@click.option(
    "--tokenizer",
    "tokenizer_folder",
    type=_FOLDER,
    help="Folder of the target's tokenizer; with it the engine is called directly.",
)
@click.option(
    "--timeout", "deadline_s", metavar="SECONDS", callback=_seconds, help="Seconds for one request to answer, or none."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
def command(
    spec: Path | None, url: str | None, workspace: Path | None, junit: Path | None, as_json: bool, **options: Any
) -> None:
    """Compare output, acceptance and speed with and without speculation.

    SPEC is verified on the server that `trtspec serve SPEC` started. Exits with 4 when the output differs, nothing
    was ever drafted, one request's text shows in another's answer, or a threshold of the spec's `verify` section is
    missed. A server that trtspec did not deploy (--url with --model, or HTTP) is measured and probed instead.
    """
    if (spec is None) == (url is None):
        raise click.UsageError("give either a SPEC file or --url.")
    if url is None and options["model"]:
        raise click.UsageError("--model goes with --url: a SPEC says what it serves.")
    from trt_spec.verify.load.address import is_http

    given = {name: value for name, value in options.items() if value is not None}
    if url is not None and (is_http(url) or "model" in given):
        _verify_foreign(url, junit, as_json, given)
        return
    from rich.console import Console

    from trt_spec.util.files import write_text_atomic
    from trt_spec.verify.junit import render_junit
    from trt_spec.verify.report import print_report, render_json
    from trt_spec.verify.run import run_verify
    from trt_spec.verify.verdict import check_report

    report = run_verify(_resolve(spec, url, workspace, given), progress=_say)
    if junit:
        write_text_atomic(junit, render_junit(report))
    if as_json:
        click.echo(render_json(report), nl=False)
    else:
        print_report(report, Console())
    check_report(report)


def _say(message: str) -> None:
    click.echo(message, err=True)


def _verify_foreign(url: str, junit: Path | None, as_json: bool, given: dict[str, Any]) -> None:
    from rich.console import Console

    from trt_spec.util.files import write_text_atomic
    from trt_spec.verify.endpoint import EndpointOptions, check_endpoint, print_endpoint, render_junit, verify_endpoint
    from trt_spec.verify.results import to_json

    folder = given.pop("report_folder", None)
    report = verify_endpoint(EndpointOptions(url=url, **given), progress=_say)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomic(folder / "report.json", to_json(report))
    if junit:
        write_text_atomic(junit, render_junit(report))
    if as_json:
        click.echo(to_json(report), nl=False)
    else:
        print_endpoint(report, Console())
    check_endpoint(report)


def _resolve(spec: Path | None, url: str | None, workspace: Path | None, given: dict[str, Any]) -> VerifyOptions:
    from dataclasses import replace

    from trt_spec.verify.run import VerifyOptions

    if spec is None:
        assert url is not None
        options = VerifyOptions(url=url)
    else:
        from trt_spec.plan.workspace import resolve_workspace
        from trt_spec.spec.load import load_spec
        from trt_spec.verify.deployment import resolve_options

        loaded = load_spec(spec)
        options = resolve_options(loaded, resolve_workspace(loaded.name, workspace))
    return replace(options, command=shlex.join(["trtspec", *sys.argv[1:]]), **given)
