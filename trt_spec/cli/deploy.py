"""``trtspec deploy``: write the Triton model repository of a built spec, and the files that start it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from trt_spec.spec.model import TargetName

if TYPE_CHECKING:
    from trt_spec.deploy.launch_files import Deployed
    from trt_spec.spec.model import Spec


@click.command("deploy")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder that build wrote to.")
@click.option(
    "--to",
    type=click.Choice(get_args(TargetName)),
    default="triton",
    show_default=True,
    help="Host to write launch files for; all but triton have a repository of their own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was written as one JSON document.")
def command(spec: Path, workspace: Path | None, to: TargetName, as_json: bool) -> None:
    """Write the Triton model repository of SPEC, and the files that start Triton on it.

    Backends engine and onnx must be built first; llmapi needs no build.
    """
    from trt_spec.cli.next_command import next_command
    from trt_spec.deploy.launch_files import deploy_to
    from trt_spec.deploy.ownership import read_marker
    from trt_spec.plan.workspace import resolve_workspace
    from trt_spec.spec.load import load_spec

    loaded = load_spec(spec)
    if loaded.backend == "llmapi":
        from trt_spec.cli.deploy_llmapi import check_models

        for line in check_models(loaded):
            click.echo(line, err=True)
    deployed = deploy_to(resolve_workspace(loaded.name, workspace), loaded, to)
    written = read_marker(deployed.repository) or {}
    for note in deployed.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        files = {"folder": str(deployed.folder), "launch_files": list(deployed.files)} if deployed.folder else {}
        document = {"repository": str(deployed.repository), "to": to, **files, **written}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    click.echo(f"Wrote {deployed.repository}: {', '.join(written.get('models', ()))}.", err=True)
    if loaded.backend != "onnx":  # on a CPU nobody else names them
        click.echo(f"Tensor names: {written.get('dialect', {}).get('trust')}.", err=True)
    if loaded.backend == "llmapi":
        _print_llmapi(loaded)
    if loaded.backend != "llmapi" or deployed.folder is not None:  # else no recorded container could be started
        click.echo(_next_step(next_command("serve", spec, workspace), deployed, to), err=True)


def _print_llmapi(spec: Spec) -> None:
    from trt_spec.plan.llmapi import plan_llmapi

    for finding in plan_llmapi(spec).findings:
        click.echo(f"{finding.severity}: {finding.message} {finding.remedy}".rstrip(), err=True)
    click.echo("compare/ beside it serves the same models with trtllm-serve and vLLM.", err=True)


def _next_step(serve: str, deployed: Deployed, to: str) -> str:
    if deployed.folder is None:
        return f"Start it with: {serve}"
    folder = shlex.quote(str(deployed.folder))
    start = {
        "triton": f"{serve}, or by hand: {folder}/launch.sh",
        "compose": f"docker compose --project-directory {folder} up --detach --wait",
        "k8s": f"kubectl apply -k {folder}",
        "slurm": f"sbatch {folder}/trtspec.sbatch",
    }[to]
    return f"Wrote {deployed.folder}: {', '.join(deployed.files)}.\nStart it with: {start}"
