"""What can be known before the start: versions, files, GPUs. A failing load of hours takes as long to say so."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trt_spec.deploy.gpu_host.runner import Runner
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.engine_record import SeenGpu, judge_files, judge_gpus, judge_version
from trt_spec.plan.finding import Finding
from trt_spec.plan.manifest import BuiltWith, Manifest
from trt_spec.plan.placement import Placement
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role

RECORD_FILE = "manifest.json"
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_ROLES: tuple[Role, ...] = ("target", "draft")


def check_one_node(placement: Placement) -> None:
    """Raise SpecError for ranks on several nodes: `trtspec serve` starts processes of this one."""
    nodes = {node for placed in placement.roles.values() for node in placed.nodes}
    if nodes != {0}:
        raise SpecError(
            f"The ranks lie on {len(nodes | {0})} nodes; `trtspec serve` starts those of one.",
            remedy="Write launch files for several with `trtspec deploy --to slurm` or `--to k8s`.",
        )


def resolve_visible_gpus(seen: Sequence[SeenGpu], variable: str | None) -> tuple[SeenGpu, ...]:
    """The GPUs as a CUDA program counts them: ``variable`` is the value of CUDA_VISIBLE_DEVICES, None if not set.

    Raises EnvironmentMissing for one that names GPUs otherwise than by their index. Pure.
    """
    if variable is None:
        return tuple(seen)
    by_index = {str(gpu.index): gpu for gpu in seen}
    visible: list[SeenGpu] = []
    for name in filter(None, (part.strip() for part in variable.split(","))):
        if not name.lstrip("-").isdigit():
            raise EnvironmentMissing(
                f"{VISIBLE_VARIABLE} is {variable!r}: GPUs named otherwise than by index cannot be checked.",
                remedy="Name them by the indices of nvidia-smi, or unset the variable.",
            )
        if name not in by_index:
            break  # CUDA ignores what follows an index that is not there
        visible.append(replace(by_index[name], index=len(visible)))
    return tuple(visible)


def check_gpu_host(
    manifest: Manifest, place: Workspace, placement: Placement, runner: Runner, seen: Sequence[SeenGpu]
) -> None:
    """Raise unless this machine can load the engines; ``seen`` are the GPUs that the server's processes will see.

    SpecError for engines of another version or with files that are not whole, EnvironmentMissing for GPUs that are not
    there or of another architecture.
    """
    faults = list(_judge_engines(manifest, place, runner))
    if faults:
        raise SpecError(" ".join(fault.message for fault in faults), remedy=faults[0].remedy)
    if not seen:
        hidden = os.environ.get(VISIBLE_VARIABLE)
        raise EnvironmentMissing(
            "nvidia-smi lists no GPU that the engines could run on"
            + (f" ({VISIBLE_VARIABLE} is {hidden!r})." if hidden is not None else "."),
            remedy="Serve on the GPU host, or look at `trtspec doctor`.",
        )
    unfit = [
        finding
        for role, placed in placement.roles.items()
        if (built := _built_with(manifest, role)) is not None
        for finding in judge_gpus(built.compute_capability, placed.device_ids, seen, role)
    ]
    if unfit:
        count = f"{len(seen)} {'is' if len(seen) == 1 else 'are'} visible here."
        raise EnvironmentMissing(f"{' '.join(fault.message for fault in unfit)} {count}", remedy=unfit[0].remedy)


def _built_with(manifest: Manifest, role: str) -> BuiltWith | None:
    entry = manifest.engines.get(role)
    return None if entry is None else entry.built_with


def _judge_engines(manifest: Manifest, place: Workspace, runner: Runner) -> Iterator[Finding]:
    for role in _ROLES:
        if role not in manifest.engines:
            continue
        built = _built_with(manifest, role)
        if built is not None:
            yield from judge_version(built.tensorrt_llm, runner.image, role)
            yield from _judge_installed(built.tensorrt_llm, runner, role)
        yield from _judge_files(place.engine(role), role)


def _judge_installed(engine_version: str, runner: Runner, role: Role) -> Iterator[Finding]:
    if runner.tensorrt_llm is not None and runner.tensorrt_llm != engine_version:
        yield Finding(
            "engine-version",
            "refuse",
            f"{role}: the engine was built with TensorRT-LLM {engine_version}, {runner.tensorrt_llm} is installed.",
            f"Build it again here, or serve it in the container of {engine_version}.",
            role,
        )


def _judge_files(folder: Path, role: Role) -> Iterator[Finding]:
    record = _load_record(folder / RECORD_FILE)
    if record is None:
        yield Finding(
            "engine-file",
            "refuse",
            f"{role}: {folder / RECORD_FILE} is missing or damaged, so the engine is not known to be whole.",
            "Run `trtspec build SPEC` again: only this engine is made.",
            role,
        )
        return
    found = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    yield from judge_files(record, found, role)


def _load_record(file: Path) -> Mapping[str, Any] | None:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        files = record["files"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    is_whole = all(isinstance(entry, dict) and isinstance(entry.get("bytes"), int) for entry in files)
    return record if is_whole and isinstance(record, dict) else None
