"""``trtspec doctor``: what this machine can do, and what to install for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from trt_spec.spec.model import Backend
from trt_spec.spec.rules import SUPPORTED_TENSORRT_LLM

if TYPE_CHECKING:
    from trt_spec.build.doctor.machine import EmbeddedTriton

DEFAULT_BACKEND: Backend = "onnx"


@click.command("doctor")
@click.option("--backend", type=click.Choice(get_args(Backend)), help="Show this backend alone; it must work.")
@click.option(
    "--tensorrt-llm",
    type=click.Choice(SUPPORTED_TENSORRT_LLM),
    default=SUPPORTED_TENSORRT_LLM[-1],
    show_default=True,
    help="Version to judge driver and container by.",
)
@click.option("-o", "--workspace", type=click.Path(path_type=Path), help="Folder of later builds.")
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis as one JSON document.")
def command(backend: Backend | None, tensorrt_llm: str, workspace: Path | None, as_json: bool) -> None:
    """Look at driver, GPUs, containers, memory, disk, login and packages; say what they mean for each backend.

    Writes nothing. Exits with 3 when the backend named, or onnx if none is, does not work here.
    """
    from trt_spec.build.doctor.judge import judge_machine, render_json
    from trt_spec.build.doctor.readings import read_machine
    from trt_spec.cli.doctor_lines import print_diagnosis
    from trt_spec.errors import EnvironmentMissing
    from trt_spec.plan.toolchain import load_profile
    from trt_spec.plan.workspace import WORKSPACES
    from trt_spec.util.cache import resolve_cache_dir

    machine = read_machine(workspace or Path(WORKSPACES), resolve_cache_dir())
    diagnosis = judge_machine(machine, _find_embedded_triton(), load_profile(tensorrt_llm))
    if as_json:
        click.echo(render_json(diagnosis, machine), nl=False)
    else:
        from rich.console import Console

        print_diagnosis(diagnosis, backend, Console())
    wanted = backend or DEFAULT_BACKEND
    if obstacles := diagnosis.find_obstacles(wanted):
        named = ", ".join(check.name for check in obstacles)
        raise EnvironmentMissing(f"Backend {wanted} does not work here: {named}.", remedy=obstacles[0].remedy)


def _find_embedded_triton() -> EmbeddedTriton:
    from trt_spec.build.doctor.machine import EmbeddedTriton
    from trt_spec.deploy.host.triton import find_triton
    from trt_spec.errors import EnvironmentMissing

    try:
        return EmbeddedTriton(find_triton().version)
    except EnvironmentMissing as error:
        return EmbeddedTriton(fault=error.found, remedy=error.remedy)
