"""What a build needs of this machine, checked before anything starts: hours later is too late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trt_spec.build.engine.host import (
    read_available_memory_bytes,
    read_free_disk_bytes,
    read_shared_memory_bytes,
)
from trt_spec.build.engine.toolchain import Toolchain
from trt_spec.errors import EnvironmentMissing
from trt_spec.plan.build_cost import StepCost, peak_disk_bytes
from trt_spec.plan.container_limits import shared_memory_bytes
from trt_spec.plan.engine_record import SeenGpu
from trt_spec.plan.hardware import GIB, Gpu, load_gpu
from trt_spec.plan.plan import Plan
from trt_spec.plan.toolchain import Profile

DISK_MARGIN = 1.1
MEMORY_SHARE = 0.9  # of a GPU's planned memory that a seen one must have: drivers reserve differing amounts
GENERIC = "generic"


def check_disk(costs: Sequence[StepCost], folder: Path, discards: bool) -> None:
    """Raise EnvironmentMissing unless the outputs of these steps fit at their peak, with a tenth to spare."""
    needed, free = int(peak_disk_bytes(costs, discards) * DISK_MARGIN), read_free_disk_bytes(folder)
    if needed > free:
        hint = "" if discards else " With --discard-checkpoint less is needed at once."
        raise EnvironmentMissing(
            f"The build needs {needed / 1e9:.1f} GB in {folder} (downloads, checkpoints and engines, and a tenth to "
            f"spare), {free / 1e9:.1f} GB are free.",
            remedy=f"Free space, or choose a workspace on another file system with -o.{hint}",
        )


def check_memory(costs: Iterable[StepCost]) -> None:
    """Raise EnvironmentMissing unless the hungriest step fits into the host memory that is available now."""
    available = read_available_memory_bytes()
    worst = max(costs, key=lambda cost: cost.host_memory_bytes, default=None)
    if worst is None or available is None or worst.host_memory_bytes <= available:
        return
    fewer = f" build_flags: {{{worst.role}: {{workers: 1}}}} builds one rank at a time." if worst.workers > 1 else ""
    raise EnvironmentMissing(
        f"{worst.id} needs about {worst.host_memory_bytes / GIB:.0f} GiB of host memory ({worst.assumption}), "
        f"{available / GIB:.0f} GiB are available to this process.",
        remedy=f"Free memory, raise the limit of the container or job, or build on a larger host.{fewer}",
    )


def check_gpus(plan: Plan, seen: Sequence[SeenGpu], toolchain: Toolchain) -> None:
    """Raise EnvironmentMissing unless the GPUs that the steps use are there and are what the spec says."""
    assert plan.engine is not None and plan.spec.hardware is not None
    if not seen:
        raise EnvironmentMissing(
            "nvidia-smi lists no GPU, and trtllm-build tunes its kernels on one.",
            remedy="Build on the GPU host; `trtspec build SPEC --until convert` needs no GPU unless weights are "
            "quantised, and --print-script writes the steps for another machine.",
        )
    planned = load_gpu(plan.spec.hardware.gpu)
    by_index = {gpu.index: gpu for gpu in seen}
    used = sorted({index for placed in plan.engine.placement.roles.values() for index in placed.device_ids})
    for index in used:
        if index not in by_index:
            raise EnvironmentMissing(
                f"The plan uses GPU {index}, nvidia-smi lists {', '.join(map(str, sorted(by_index)))}.",
                remedy="Correct hardware.gpus and the gpus of the models, or build on the host that will serve.",
            )
        _check_gpu(by_index[index], planned)
    check_driver(by_index[used[0]].driver, toolchain.profile)


def _check_gpu(gpu: SeenGpu, planned: Gpu) -> None:
    if planned.name == GENERIC:
        return
    if gpu.compute_capability != planned.sm:
        raise EnvironmentMissing(
            f"GPU {gpu.index} is {gpu.name} of compute capability {gpu.compute_capability}, the spec's {planned.name} "
            f"has {planned.sm}: an engine runs on the architecture it was built on only.",
            remedy="Set hardware.gpu to what is there, or build on the host that will serve.",
        )
    if gpu.memory_bytes < planned.memory_bytes * MEMORY_SHARE:
        raise EnvironmentMissing(
            f"GPU {gpu.index} ({gpu.name}) has {gpu.memory_bytes / GIB:.0f} GiB, the plan counts on "
            f"{planned.memory_bytes / GIB:.0f} GiB of a {planned.name}.",
            remedy="Set hardware.gpu to what is there (MIG slices count as they are).",
        )


def check_driver(driver: str, profile: Profile) -> None:
    """Raise EnvironmentMissing for a driver older than CUDA's minor-version compatibility allows."""
    try:
        major = int(driver.split(".")[0])
    except ValueError:
        return
    if profile.min_driver is not None and major < int(profile.min_driver):
        raise EnvironmentMissing(
            f"The NVIDIA driver is {driver}; CUDA {profile.cuda} of TensorRT-LLM {profile.version} needs "
            f"{profile.min_driver} or newer (its container was made for {profile.driver}).",
            remedy="Update the driver, or choose an older tensorrt_llm.",
        )


def check_shared_memory(toolchain: Toolchain, ranks: int) -> None:
    """Raise EnvironmentMissing if several ranks would share too small a /dev/shm; containers get one of their own."""
    if toolchain.runtime is not None or ranks < 2:
        return
    there, needed = read_shared_memory_bytes(), shared_memory_bytes(ranks)
    if there is not None and there < needed:
        raise EnvironmentMissing(
            f"/dev/shm holds {there / GIB:.2f} GiB, {ranks} ranks need {needed / GIB:.0f} GiB.",
            remedy=f"Enlarge it: in docker with --shm-size {needed // GIB}g, on a host by `mount -o "
            f"remount,size={needed // GIB}g /dev/shm`.",
        )


def check_mounts(folders: Sequence[Path]) -> None:
    """Raise EnvironmentMissing for a path that `--volume HOST:CONTAINER` cannot spell."""
    for folder in folders:
        if ":" in str(folder):
            raise EnvironmentMissing(
                f"{folder} has a colon in its name, and a container cannot be given it.",
                remedy="Rename the folder, or choose another workspace with -o.",
            )
