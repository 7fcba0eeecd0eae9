"""``trtspec verify``: prove that speculation is lossless, accepted and faster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("verify")
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--url", metavar="HOST:PORT", help="gRPC address of a running server, instead of a spec.")
@click.option("-o", "--workspace", type=_FOLDER, help="Folder that build wrote to.")
@click.option("--prompts", type=click.Path(path_type=Path), help='JSON Lines file: {"text": "..."} a line.')
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens to generate per prompt.  [default: 96]")
@click.option("--report", type=_FOLDER, help="Folder for report.json and report.md.  [default: WORKSPACE/reports]")
@click.option(
    "--tokenizer", type=_FOLDER, help="Folder of the target's tokenizer; with it the engine is called directly."
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds for one request to answer.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
def command(spec: Path | None, url: str | None, workspace: Path | None, as_json: bool, **overrides: Any) -> None:
    """Compare greedy output, acceptance and speed with and without speculation.

    SPEC is verified on the server that `trtspec serve SPEC` started. Exits with 4 when the output differs or
    nothing was ever drafted; near-ties of the target's logits are counted and tolerated.
    """
    if (spec is None) == (url is None):
        raise click.UsageError("give either a SPEC file or --url HOST:PORT.")
    from rich.console import Console

    from trt_spec.verify.report import check_report, print_report, render_json
    from trt_spec.verify.run import run_verify

    options = _resolve(spec, url, workspace, overrides)
    report = run_verify(options, progress=lambda message: click.echo(message, err=True))
    if as_json:
        click.echo(render_json(report), nl=False)
    else:
        print_report(report, Console())
    check_report(report)


def _resolve(spec: Path | None, url: str | None, workspace: Path | None, overrides: dict[str, Any]) -> Any:
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
    named = {
        "prompts_path": overrides["prompts"],
        "max_tokens": overrides["max_tokens"],
        "report_folder": overrides["report"],
        "tokenizer_folder": overrides["tokenizer"],
        "deadline_s": overrides["timeout"],
    }
    given = {name: value for name, value in named.items() if value is not None}
    return replace(options, command=shlex.join(["trtspec", *sys.argv[1:]]), **given)
