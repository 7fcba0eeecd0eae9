"""What the machine did during a run: processor, memory and GPUs, where they can be read. None where they cannot."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trt_spec.util.nvidia_smi import query_gpus
from trt_spec.verify.results import MachineLoad

_PROC = Path("/proc")
_MIB = 2**20


class CpuTimes(NamedTuple):
    """Ticks of all processors since boot."""

    busy: int
    total: int


def read_cpu_times(proc: Path = _PROC) -> CpuTimes | None:
    """From /proc/stat; waiting for disks counts as idle."""
    try:
        fields = [int(word) for word in (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return CpuTimes(sum(fields) - fields[3] - fields[4], sum(fields)) if len(fields) == 8 else None


def measure_machine(before: CpuTimes | None, proc: Path = _PROC) -> MachineLoad:
    """Processor load since ``before``, and memory and GPUs as they are now. Of this machine alone."""
    after = read_cpu_times(proc)
    fraction = None
    if before is not None and after is not None and after.total > before.total:
        fraction = (after.busy - before.busy) / (after.total - before.total)
    total, available = _read_memory(proc)
    gpus = [_ints(line) for line in query_gpus(("utilization.gpu", "memory.used", "clocks.sm")).splitlines()]
    known = [row for row in gpus if row is not None]
    return MachineLoad(
        cpu_fraction=fraction,
        memory_used_bytes=None if total is None or available is None else total - available,
        memory_total_bytes=total,
        gpu_utilization_percent=tuple(row[0] for row in known),
        gpu_memory_used_bytes=tuple(row[1] * _MIB for row in known),
        gpu_clock_mhz=tuple(row[2] for row in known),
    )


def read_gpu_utilization() -> tuple[int, ...]:
    """Percent by GPU, empty where nvidia-smi is missing."""
    return tuple(row[0] for line in query_gpus(("utilization.gpu",)).splitlines() if (row := _ints(line)))


def describe_gpus() -> str:
    """The GPUs and their driver in one line, empty where there are none."""
    rows = [
        [word.strip() for word in line.split(",")]
        for line in query_gpus(("name", "memory.total", "driver_version")).splitlines()
    ]
    known = [row for row in rows if len(row) == 3]
    if not known:
        return ""
    names = [f"{name} ({memory} MiB)" for name, memory, _ in known]
    counted = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return f"{counted}, driver {known[0][2]}"


def explain_silence(utilization: tuple[int, ...]) -> str:
    """What GPU load says of a server that does not answer; empty without GPUs."""
    if not utilization:
        return ""
    listed = "/".join(map(str, utilization))
    if max(utilization) >= 90 and min(utilization) <= 10:
        return f"ranks diverged: util {listed}"
    return f"GPU util {listed}"


def _ints(line: str) -> list[int] | None:
    try:
        return [int(word) for word in line.split(",")]
    except ValueError:
        return None  # "[N/A]": some GPUs tell nothing of their load


def _read_memory(proc: Path) -> tuple[int | None, int | None]:
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None, None
    values = {line.partition(":")[0]: line.split()[1] for line in lines if len(line.split()) > 1}
    total, available = values.get("MemTotal", ""), values.get("MemAvailable", "")
    return tuple(int(word) * 1024 if word.isdecimal() else None for word in (total, available))  # type: ignore[return-value]
