"""``trtspec build``: make the engines of a spec."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("build")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder to build into.")
@click.option("--force", is_flag=True, help="Build every engine again, also unchanged ones.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON document.")
def command(spec: Path, workspace: Path | None, force: bool, as_json: bool) -> None:
    """Build draft and target engines of SPEC into WORKSPACE, by default ./workspace/NAME.

    What is already built from the same inputs is left alone, and an interrupted build goes on where it was.
    """
    from trt_spec.build.run import BuildOptions, run_build
    from trt_spec.cli.progress import StepProgress
    from trt_spec.plan.manifest import render_manifest
    from trt_spec.plan.workspace import resolve_workspace
    from trt_spec.spec.load import load_spec

    loaded = load_spec(spec)
    place = resolve_workspace(loaded.name, workspace)
    with StepProgress() as progress:
        manifest, ran = run_build(BuildOptions(loaded, place, force=force), progress.report)
    if as_json:
        click.echo(json.dumps({"ran": ran, "manifest": json.loads(render_manifest(manifest))}, indent=2))
        return
    click.echo(f"Built {', '.join(ran)}." if ran else "Nothing to do: everything is built.", err=True)
    for role in manifest.engines:
        click.echo(f"  {role:7} {place.engine(role)}", err=True)
    click.echo(f"Next: trtspec deploy {spec}", err=True)
