"""``trtspec prove``: which rules of the conformance table hold on a running server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trt_spec.serve.contract import TARGET_MODEL

if TYPE_CHECKING:
    from rich.console import Console

    from trt_spec.verify.conformance.prove import Proof, ProveOptions, Record

_FOLDER = click.Path(file_okay=False, path_type=Path)
_STYLES = {"held": "green", "differs": "bold red", "not applicable": "dim"}


@click.command("prove")
@click.argument("target", metavar="SPEC|URL")
@click.option("-o", "--workspace", type=_FOLDER, help="Folder that build wrote to.")
@click.option("--report", type=_FOLDER, help="Folder for conformance.json.  [default with a SPEC: WORKSPACE/reports]")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds for one request to answer.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as one JSON document.")
def command(target: str, workspace: Path | None, report: Path | None, timeout: float | None, as_json: bool) -> None:
    """Probe how the engines of a running server behave.

    SPEC is proved on the server that `trtspec serve SPEC` started; URL is HOST:PORT of the gRPC port of any Triton
    server with NVIDIA's engine models. Sends some hundred small requests, one after the other. Exits with 4 when a rule
    does not hold.
    """
    from rich.console import Console

    from trt_spec.verify.conformance.prove import check_record, render_record, run_prove

    options = _resolve(target, workspace, report, timeout)
    record = run_prove(options, progress=lambda message: click.echo(message, err=True))
    if as_json:
        click.echo(render_record(record), nl=False)
    else:
        _print(record, Console())
    check_record(record)


def _resolve(target: str, workspace: Path | None, report: Path | None, timeout: float | None) -> ProveOptions:
    from trt_spec.verify.client import parse_url
    from trt_spec.verify.conformance.prove import DEFAULT_DEADLINE_S, ProveOptions

    deadline_s = timeout or DEFAULT_DEADLINE_S
    if not Path(target).is_file():
        if target.endswith((".yaml", ".yml")):
            raise click.UsageError(f"there is no spec {target}.")
        return ProveOptions(parse_url(target), deadline_s, report)
    from trt_spec.plan.workspace import resolve_workspace
    from trt_spec.spec.load import load_spec
    from trt_spec.verify.deployment import resolve_url

    spec = load_spec(Path(target))
    place = resolve_workspace(spec.name, workspace)
    about = {"name": spec.name, "backend": spec.backend, "tensorrt_llm": spec.tensorrt_llm}
    return ProveOptions(resolve_url(spec, place), deadline_s, report or place.reports, about)


def _name(proof: Proof) -> str:
    return proof.row.id if proof.model == TARGET_MODEL else f"{proof.row.id} (draft)"


def _print(record: Record, console: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    from trt_spec.verify.conformance.prove import describe_place

    table = Table(title="conformance", title_justify="left")
    for name in ("rule", "expected", "seen", "verdict"):
        table.add_column(name, overflow="fold")
    for proof in record.proofs:
        seen = proof.observation
        style = _STYLES[seen.verdict]
        table.add_row(*map(escape, (_name(proof), seen.expected, seen.seen)), f"[{style}]{seen.verdict}[/]")
    console.print(table)
    counts = ", ".join(f"{len(record.of(verdict))} {verdict}" for verdict in _STYLES)
    console.print(escape(f"{counts}; {record.requests} requests; {describe_place(record)}"), highlight=False)
