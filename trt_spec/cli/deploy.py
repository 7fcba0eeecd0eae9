"""``trtspec deploy``: write the Triton model repository of a built spec."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click


@click.command("deploy")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder that build wrote to.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as one JSON document.")
def command(spec: Path, workspace: Path | None, as_json: bool) -> None:
    """Write the Triton model repository of a built SPEC to WORKSPACE/repository."""
    from trt_spec.deploy.ownership import read_marker
    from trt_spec.deploy.workspace import deploy_workspace
    from trt_spec.plan.workspace import resolve_workspace
    from trt_spec.spec.load import load_spec

    loaded = load_spec(spec)
    repository = deploy_workspace(resolve_workspace(loaded.name, workspace), loaded)
    written = read_marker(repository) or {}
    if as_json:
        click.echo(json.dumps({"repository": str(repository), **written}, indent=2, ensure_ascii=False))
        return
    click.echo(f"Wrote {repository}: {', '.join(written.get('models', ()))}.", err=True)
    if loaded.backend == "engine":  # on a CPU nobody else names them
        click.echo(f"Tensor names: {written.get('dialect', {}).get('trust')}.", err=True)
    click.echo(f"Start it with: trtspec serve {shlex.quote(str(spec))}", err=True)
