"""What this machine has to build with: GPUs and driver, host memory, room on disk, shared memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trt_spec.plan.engine_record import GPU_FIELDS, SeenGpu, parse_gpus
from trt_spec.util.nvidia_smi import query_gpus

SHARED_MEMORY = Path("/dev/shm")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def read_gpus() -> tuple[SeenGpu, ...]:
    """The GPUs that nvidia-smi lists; none where it is missing or fails."""
    return parse_gpus(query_gpus(GPU_FIELDS))


def read_available_memory_bytes() -> int | None:
    """Host memory that a build can use now: MemAvailable, less if a container's own limit is lower; None if unknown."""
    found = [value for value in (_read_mem_available(), *map(_read_room, _own_cgroups())) if value is not None]
    return min(found) if found else None


def _read_mem_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def _own_cgroups() -> list[Path]:
    """Folders of the control groups (version 2) that this process is in, the innermost first."""
    try:
        lines = OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if path is None:
        return []
    inner = CGROUPS / path
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(CGROUPS))]


def _read_room(group: Path) -> int | None:
    """A group's limit less what its processes hold; pages of files do not count, they can be dropped."""
    try:
        limit = int((group / "memory.max").read_text(encoding="utf-8"))
        rows = (line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines())
        held = next(int(value) for key, value in rows if key == "anon")
    except (OSError, ValueError, StopIteration):  # no limit reads "max"
        return None
    return max(limit - held, 0)


def read_free_disk_bytes(folder: Path) -> int:
    """Bytes that can be written below ``folder``, which need not exist yet."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free


def read_shared_memory_bytes() -> int | None:
    """The size of /dev/shm, None where there is none."""
    try:
        state = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return state.f_frsize * state.f_blocks
