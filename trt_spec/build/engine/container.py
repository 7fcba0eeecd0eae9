"""Command lines as they are really run: with the step's GPUs, in this environment or in a container."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trt_spec.build.engine.process import Command
from trt_spec.build.engine.toolchain import Runtime, Toolchain, program_path, workspace_label
from trt_spec.plan.container_limits import gpu_options, limit_options

SECRET_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
HUB_CACHE_NAME = "cache"  # of calibration data, below the workspace


@dataclass(frozen=True)
class Place:
    """What a command may touch: the workspace, folders to read besides, GPUs by index, ranks that it works on.

    ``scratch`` takes temporary files. ``name`` becomes the container's.
    """

    workspace: Path
    reads: tuple[Path, ...]
    gpus: tuple[int, ...]
    ranks: int
    scratch: Path
    name: str
    uses_hub: bool = False


def render_command(toolchain: Toolchain, argv: Sequence[str], place: Place) -> Command:
    """How a tool of NVIDIA is started. The token of the hub goes along by name alone, and only where it is needed."""
    environment = {name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES}
    secrets = tuple(name for name in SECRET_VARIABLES if place.uses_hub and os.environ.get(name))
    environment |= {name: os.environ[name] for name in secrets}
    if toolchain.runtime is None:
        environment |= {"PATH": program_path(), **_variables(place)}
        return Command(tuple(argv), environment, secrets=secrets)
    runtime = toolchain.runtime
    return Command(
        (*container_argv(runtime, toolchain.profile.container, place, secrets), *argv),
        environment,
        cleanup=(runtime, "rm", "--force", place.name),
        secrets=secrets,
    )


def _variables(place: Place) -> dict[str, str]:
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi counts
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, place.gpus)),
        "TMPDIR": str(place.scratch),
    }


def container_argv(runtime: Runtime, image: str, place: Place, secrets: Sequence[str]) -> tuple[str, ...]:
    """``docker run`` or ``podman run`` up to the image: every path is the same inside, files belong to the user."""
    variables = {
        # The image knows no such user, so there is no home of theirs.
        "HOME": str(place.scratch),
        "HF_HOME": str(place.workspace / HUB_CACHE_NAME / "huggingface"),
        "TMPDIR": str(place.scratch),
    }
    return (
        *(runtime, "run", "--rm", "--init", "--name", place.name, "--label", workspace_label(place.workspace)),
        *_user(runtime),
        *_gpus(runtime, place.gpus),
        *limit_options(place.ranks),
        *("--volume", f"{place.workspace}:{place.workspace}"),
        *(word for folder in place.reads for word in ("--volume", f"{folder}:{folder}:ro")),
        *("--workdir", str(place.workspace)),
        *(word for name, value in variables.items() for word in ("--env", f"{name}={value}")),
        *(word for name in secrets for word in ("--env", name)),
        image,
    )


def _user(runtime: Runtime) -> tuple[str, ...]:
    user = ("--user", f"{os.getuid()}:{os.getgid()}")
    # Without daemon and root, podman maps ids; the mapping and SELinux labels would hide the mounted folders.
    return (*user, "--userns", "keep-id", "--security-opt", "label=disable") if runtime == "podman" else user


def _gpus(runtime: Runtime, gpus: Sequence[int]) -> tuple[str, ...]:
    if runtime == "podman":  # by the container device interface, which NVIDIA's toolkit sets up
        return tuple(word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}"))
    return gpu_options(gpus)
