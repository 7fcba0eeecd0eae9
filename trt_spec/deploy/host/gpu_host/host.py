"""The command that serves a repository on this GPU host, from the same description as the launch files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trt_spec.deploy.host.container import ALL_ADDRESSES, ContainerRun, container_argv, container_name
from trt_spec.deploy.host.gpu_host.runner import Runner
from trt_spec.deploy.host.gpu_host.visible import choose_visible
from trt_spec.deploy.host.server import shm_prefix_of
from trt_spec.deploy.host.start_command import StartCommand
from trt_spec.deploy.shell_paths import link_plain_path
from trt_spec.plan.launch import EXIT_TIMEOUT_S, TRITONSERVER, Launch
from trt_spec.plan.llmapi_launch import VISIBLE_VARIABLE
from trt_spec.spec.model import Serve

# What docker and mpirun may take beyond the longest that tritonserver gives its models. It has that long only where it
# is started without mpirun, which kills its ranks about a second after SIGTERM (measured, Open MPI 4.1 and 5.0).
STOP_MARGIN_S = 15.0
REPOSITORY_LINK = "served-repository"


class PlanLaunch(Protocol):
    """The launch of a repository for addresses and ports; ``plan_launch`` with the placement given."""

    def __call__(self, repository: str, serve: Serve, *, program: str, shm_prefix: str) -> Launch: ...


@dataclass(frozen=True)
class GpuHost:
    """What is served here and how. ``gpus`` are the host's indices that a container sees, ``mounts`` what it reads.

    ``processes`` share memory: those of the engines and the orchestrator. ``timeout_s`` is how long they may load.
    """

    runner: Runner
    workspace: Path
    repository: Path
    plan: PlanLaunch
    gpus: tuple[int, ...]
    processes: int
    mounts: tuple[Path, ...]
    timeout_s: float

    def command(self, serve: Serve, token: str) -> StartCommand:
        """How to start it with the workspace as working directory; a link is made there for a path that needs one.

        ``serve.host`` is an address; ``token``, hexadecimal digits, is what names this start.
        """
        stop_timeout_s = EXIT_TIMEOUT_S + STOP_MARGIN_S
        server = self.runner.server
        if server is not None:
            launch = self._plan(serve, str(server), token)
            environment = _native_environment(launch.environment, os.environ)
            return StartCommand(launch.command(), environment, None, stop_timeout_s)
        launch = self._plan(serve.model_copy(update={"host": ALL_ADDRESSES}), TRITONSERVER, token)
        run = ContainerRun(
            image=self.runner.image,
            gpus=self.gpus,
            processes=self.processes,
            address=serve.host,
            ports=tuple(serve.ports.values()),
            mounts=self.mounts,
            environment=launch.environment,
            name=container_name(token),
            workdir=self.workspace,
        )
        return StartCommand((*container_argv(run), *launch.command()), dict(os.environ), run.name, stop_timeout_s)

    def _plan(self, serve: Serve, program: str, token: str) -> Launch:
        repository = link_plain_path(self.repository, self.workspace, REPOSITORY_LINK)
        return self.plan(repository, serve, program=program, shm_prefix=shm_prefix_of(token))


def _native_environment(planned: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """GPUs that the launch picks are counted among those that are visible here."""
    environment = {**here, **planned}
    if VISIBLE_VARIABLE in planned:
        environment[VISIBLE_VARIABLE] = choose_visible(here.get(VISIBLE_VARIABLE), planned[VISIBLE_VARIABLE])
    return environment
