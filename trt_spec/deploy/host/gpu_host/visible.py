"""Which GPUs the processes of a native server see, by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from trt_spec.deploy.host.gpu_host.runner import Runner
from trt_spec.errors import EnvironmentMissing
from trt_spec.plan.engine_record import GPU_FIELDS, SeenGpu, parse_gpus
from trt_spec.plan.llmapi_launch import VISIBLE_VARIABLE
from trt_spec.util.nvidia_smi import query_gpus


def see_gpus(runner: Runner) -> tuple[SeenGpu, ...]:
    """The GPUs that the server's processes can be given: all of the host in a container, the visible ones natively."""
    seen = parse_gpus(query_gpus(GPU_FIELDS))
    return seen if runner.server is None else resolve_visible_gpus(seen, os.environ.get(VISIBLE_VARIABLE))


def resolve_visible_gpus(seen: Sequence[SeenGpu], variable: str | None) -> tuple[SeenGpu, ...]:
    """The GPUs as a CUDA program counts them: ``variable`` is the value of CUDA_VISIBLE_DEVICES, None if not set.

    Raises EnvironmentMissing for one that names GPUs otherwise than by their index. Pure.
    """
    if variable is None:
        return tuple(seen)
    by_index = {str(gpu.index): gpu for gpu in seen}
    visible: list[SeenGpu] = []
    for name in _split(variable):
        if not name.lstrip("-").isdigit():
            raise EnvironmentMissing(
                f"{VISIBLE_VARIABLE} is {variable!r}: GPUs named otherwise than by index cannot be checked.",
                remedy="Name them by the indices of nvidia-smi, or unset the variable.",
            )
        if name not in by_index:
            break  # CUDA ignores what follows an index that is not there
        visible.append(replace(by_index[name], index=len(visible)))
    return tuple(visible)


def choose_visible(variable: str | None, chosen: str) -> str:
    """The value that leaves only ``chosen`` of the GPUs that ``variable`` shows, indices that count among those. Pure.

    Each of them must be there.
    """
    if variable is None:
        return chosen
    visible = _split(variable)
    return ",".join(visible[int(index)] for index in _split(chosen))


def _split(names: str) -> list[str]:
    return [name for part in names.split(",") if (name := part.strip())]
