"""What can be known before the start: versions, files, GPUs. A failing load of hours takes as long to say so."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trt_spec.deploy.check.engine_files import RECORD_FILE, load_engine_record
from trt_spec.deploy.host.gpu_host.runner import Runner
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.engine_record import BUILD_AGAIN, SeenGpu, compare_sizes, judge_gpus, judge_version
from trt_spec.plan.finding import Finding
from trt_spec.plan.llmapi_launch import VISIBLE_VARIABLE
from trt_spec.plan.manifest import BuiltWith, Manifest
from trt_spec.plan.placement import Placement
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role

_ROLES: tuple[Role, ...] = ("target", "draft")


def check_one_node(placement: Placement) -> None:
    """Raise SpecError for ranks on several nodes: `trtspec serve` starts processes of this one."""
    if placement.node_count > 1:
        raise SpecError(
            f"The ranks lie on {placement.node_count} nodes; `trtspec serve` starts those of one.",
            remedy="Write launch files for several with `trtspec deploy --to slurm` or `--to k8s`.",
        )


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
    record = load_engine_record(folder)
    if isinstance(record, str):
        yield Finding(
            "engine-file",
            "refuse",
            f"{role}: {folder / RECORD_FILE} is missing or damaged, so the engine is not known to be whole.",
            BUILD_AGAIN,
            role,
        )
        return
    found = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    for fault in compare_sizes(record.sizes, found):
        yield Finding("engine-file", "refuse", f"{role}: {fault.what}.", BUILD_AGAIN, role)
