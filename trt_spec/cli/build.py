"""``trtspec build``: make the engines of a spec."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click


@click.command("build")
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder to build into.")
@click.option("--dry-run", is_flag=True, help="Print steps, sizes, times and exact commands; run and write nothing.")
@click.option("--until", type=click.Choice(["fetch", "convert", "build"]), default="build", help="Last kind of step.")
@click.option("--force", is_flag=True, help="Build everything again, also what is unchanged.")
@click.option("--discard-checkpoint", is_flag=True, help="Remove each checkpoint once its engine is inspected.")
@click.option("--print-script", is_flag=True, help="Print the steps as a bash script for another host.")
@click.option("--accept-derived", is_flag=True, help="Allow TensorRT-LLM releases between the recorded ones.")
@click.option("--list", "listing", is_flag=True, help="Show what lies in the workspace and whether SPEC needs it.")
@click.option("--prune", "pruning", is_flag=True, help="Show and remove what SPEC does not need, and logs of 30 days.")
@click.option("--yes", is_flag=True, help="Prune without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    spec: Path | None,
    workspace: Path | None,
    dry_run: bool,
    print_script: bool,
    listing: bool,
    pruning: bool,
    yes: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Build draft and target engines of SPEC into WORKSPACE, by default ./workspace/NAME.

    What is already built from the same inputs is left alone, and an interrupted build goes on where it was.
    With --list or --prune nothing is built, and SPEC may be left out if a built WORKSPACE is named.
    """
    if listing or pruning:
        from trt_spec.cli.outputs import prune, show_outputs

        prune(spec, workspace, yes=yes, as_json=as_json) if pruning else show_outputs(spec, workspace, as_json=as_json)
        return
    if spec is None:
        raise click.UsageError("Missing argument 'SPEC': the file that says what to build.")
    from trt_spec.build.run import BuildOptions, run_build
    from trt_spec.cli.next_command import next_command
    from trt_spec.cli.progress import StepProgress
    from trt_spec.plan.workspace import resolve_workspace
    from trt_spec.spec.load import load_spec

    loaded = load_spec(spec)
    options = BuildOptions(loaded, resolve_workspace(loaded.name, workspace), **settings)
    if dry_run or print_script:
        _preview(options, print_script, as_json)
        return
    with StepProgress() as progress:
        result = run_build(options, progress.report)
    if as_json:
        manifest = None if result.manifest is None else json.loads(result.manifest.model_dump_json())
        findings = [asdict(finding) for finding in result.findings]
        click.echo(json.dumps({"ran": result.ran, "manifest": manifest, "findings": findings}, indent=2))
        return
    for finding in result.findings:
        click.echo(f"{finding.severity}: {finding.message} {finding.remedy}".rstrip(), err=True)
    click.echo(f"Built {', '.join(result.ran)}." if result.ran else "Nothing to do: everything is built.", err=True)
    if result.manifest is not None:
        for role in result.manifest.engines:
            click.echo(f"  {role:7} {options.workspace.engine(role)}", err=True)
        click.echo(f"Next: {next_command('deploy', spec, workspace)}", err=True)


def _preview(options: Any, print_script: bool, as_json: bool) -> None:
    from trt_spec.build.preview import render_build_preview, render_build_script

    click.echo(render_build_script(options) if print_script else render_build_preview(options, as_json), nl=False)
