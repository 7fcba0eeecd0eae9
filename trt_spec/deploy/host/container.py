"""A server inside NVIDIA's container, started by docker: its command line, and the end of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trt_spec.errors import EnvironmentMissing
from trt_spec.plan.container_limits import gpu_options, limit_options

RUNTIME = "docker"
INFO_TIMEOUT_S = 20.0
REMOVE_TIMEOUT_S = 120.0
CONTAINER_PATTERN = re.compile(r"trtspec-[0-9a-f]{8,}")
ALL_ADDRESSES = "0.0.0.0"  # inside: which of the host's addresses is bound, the published ports say


@dataclass(frozen=True)
class ContainerRun:
    """One container. ``gpus`` are indices of the host, which count from 0 inside in the same order.

    ``address`` and ``ports`` are the host's, the ports are the same inside. ``mounts`` are folders that it may read,
    each at its own path; ``workdir`` is one of theirs. ``processes`` share memory.
    """

    image: str
    gpus: Sequence[int]
    processes: int
    address: str
    ports: Sequence[int]
    mounts: Sequence[Path | str]
    environment: Mapping[str, str]
    name: str
    workdir: Path | str


def container_name(token: str) -> str:
    """The name of the container that ``token``, hexadecimal digits, stands for."""
    return f"trtspec-{token}"


def container_argv(run: ContainerRun) -> tuple[str, ...]:
    """``docker run`` up to the image, with the image's own user, as NVIDIA documents it. Not run on a real GPU here."""
    return (
        *(RUNTIME, "run", "--rm", "--init", "--name", run.name),
        *gpu_options(run.gpus),
        *limit_options(run.processes),
        *(word for port in run.ports for word in ("--publish", f"{run.address}:{port}:{port}")),
        *(word for folder in run.mounts for word in ("--mount", _mount(str(folder)))),
        *("--workdir", str(run.workdir)),
        *(word for name, value in run.environment.items() for word in ("--env", f"{name}={value}")),
        run.image,
    )


def _mount(folder: str) -> str:
    """As --mount takes it, a line of CSV: unlike --volume it has room for colons in a path."""
    fields = ("type=bind", f"source={folder}", f"target={folder}", "readonly")
    return ",".join('"' + field.replace('"', '""') + '"' if re.search(r'[",\n]', field) else field for field in fields)


def judge_runtime() -> str | None:
    """Why docker cannot start containers here, in words; None where it can."""
    try:
        subprocess.run([RUNTIME, "info"], capture_output=True, timeout=INFO_TIMEOUT_S, check=True)
    except FileNotFoundError:
        return "there is no docker"
    except (OSError, subprocess.SubprocessError):
        return "docker is there but reaches no daemon (`docker info` fails)"
    return None


def remove_container(name: str) -> None:
    """Stop and remove a container; one that is gone already is fine. Raises EnvironmentMissing if it stays."""
    said = ""
    try:
        done = subprocess.run(
            [RUNTIME, "rm", "--force", name], capture_output=True, text=True, timeout=REMOVE_TIMEOUT_S, check=False
        )
        if done.returncode == 0 or "No such container" in done.stderr:
            return
        said = done.stderr.strip()
    except (OSError, subprocess.SubprocessError) as error:
        said = str(error)
    raise EnvironmentMissing(
        f"Container {name} could not be removed: {said}.", remedy=f"Remove it with `docker rm --force {name}`."
    )
