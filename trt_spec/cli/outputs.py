"""``trtspec build --list`` and ``--prune``: what lies in a workspace, and removing what nothing needs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trt_spec.plan.hardware import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_spec.build.inventory import Output
    from trt_spec.plan.workspace import Workspace
    from trt_spec.spec.model import Spec

FINGERPRINT_SHOWN = 12
HOUR_S, DAY_S = 3600.0, 86400.0


def show_outputs(spec: Path | None, workspace: Path | None, *, as_json: bool) -> None:
    """Print every output of the workspace and whether the spec needs it; without a spec, the one it was built from."""
    from trt_spec.build.inventory import list_outputs
    from trt_spec.build.planned import load_planned_steps

    loaded, place = _resolve(spec, workspace)
    _print(list_outputs(place, load_planned_steps(loaded, place)), place, as_json)


def prune(spec: Path | None, workspace: Path | None, *, yes: bool, as_json: bool) -> None:
    """Print what no step of the spec needs and remove it, once ``yes`` or a yes on the terminal agrees."""
    from trt_spec.build.inventory import prune_outputs
    from trt_spec.build.planned import load_planned_steps
    from trt_spec.errors import SpecError

    loaded, place = _resolve(spec, workspace)

    def confirm(doomed: Sequence[Output]) -> bool:
        _print(doomed, place, as_json)
        if not doomed:
            click.echo("Nothing to remove.", err=True)
            return False
        total = _size(sum(output.size_bytes for output in doomed))
        if not yes and not is_terminal():
            raise SpecError(
                f"There is no terminal to ask on, nothing of these {total} is removed.", remedy="Add --yes."
            )
        return yes or click.confirm(f"Remove these {total}?", err=True)

    if removed := prune_outputs(place, load_planned_steps(loaded, place), confirm=confirm):
        click.echo(f"Removed {len(removed)}, {_size(sum(output.size_bytes for output in removed))}.", err=True)


def is_terminal() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty()


def _resolve(spec: Path | None, workspace: Path | None) -> tuple[Spec, Workspace]:
    from trt_spec.plan.manifest import load_manifest
    from trt_spec.plan.workspace import Workspace, resolve_workspace
    from trt_spec.spec.load import load_spec

    if spec is not None:
        loaded = load_spec(spec)
        return loaded, resolve_workspace(loaded.name, workspace)
    if workspace is None:
        raise click.UsageError("give a SPEC, or a built workspace with -o.")
    place = Workspace(workspace.absolute())
    return load_manifest(place).spec, place


def _print(outputs: Sequence[Output], place: Workspace, as_json: bool) -> None:
    if as_json:
        rows = [{**asdict(output), "path": str(output.path), "removable": output.is_removable} for output in outputs]
        click.echo(json.dumps({"workspace": str(place.root), "outputs": rows}, indent=2))
        return
    for output in outputs:
        fingerprint = (output.fingerprint or "-")[:FINGERPRINT_SHOWN]
        columns = f"{output.kind:10} {output.role or '-':6} {output.state:10} {fingerprint:12}"
        click.echo(f"{columns} {_size(output.size_bytes):>10} {_age(output.age_s):>6}  {output.path}")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.1f} MiB"


def _age(age_s: float) -> str:
    return f"{age_s / DAY_S:.0f} d" if age_s >= DAY_S else f"{age_s / HOUR_S:.1f} h"
