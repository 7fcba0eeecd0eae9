"""What NVIDIA's containers need beyond docker's own defaults, wherever they are started: to build and to serve."""

from __future__ import annotations

from collections.abc import Sequence

from trt_spec.plan.hardware import GIB

MIN_SHARED_MEMORY_BYTES = 2 * GIB  # NCCL, the builder's workers, Triton's Python models; docker's own is 64 MiB
SHARED_MEMORY_PER_PROCESS_BYTES = GIB
STACK_BYTES = 67108864  # what NVIDIA's containers ask for in their own start message
MEMLOCK = -1  # no limit, by the same message


def shared_memory_bytes(processes: int) -> int:
    """What /dev/shm must hold: 2 GiB, or 1 GiB for each process if that is more."""
    return max(MIN_SHARED_MEMORY_BYTES, processes * SHARED_MEMORY_PER_PROCESS_BYTES)


def limit_options(processes: int) -> tuple[str, ...]:
    """The limits as options of ``docker run`` and ``podman run``."""
    return (
        *("--shm-size", f"{shared_memory_bytes(processes) // GIB}g"),
        *("--ulimit", f"memlock={MEMLOCK}", "--ulimit", f"stack={STACK_BYTES}"),
    )


def gpu_options(gpus: Sequence[int]) -> tuple[str, ...]:
    """GPUs of the host by index, as an option of ``docker run``. Its value is CSV: a list needs quotes of its own."""
    return ("--gpus", f'"device={",".join(map(str, gpus))}"')
