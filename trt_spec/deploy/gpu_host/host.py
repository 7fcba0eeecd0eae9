"""The command that serves a repository on this GPU host, from the same description as the launch files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trt_spec.deploy.container import ALL_ADDRESSES, ContainerRun, container_argv
from trt_spec.deploy.gpu_host.runner import Runner
from trt_spec.deploy.shell_paths import link_plain_path
from trt_spec.deploy.start_command import StartCommand
from trt_spec.plan.launch import EXIT_TIMEOUT_S, TRITONSERVER, Launch
from trt_spec.spec.model import Serve

STOP_MARGIN_S = 15.0  # mpirun and docker take theirs after tritonserver's own time
REPOSITORY_LINK = "served-repository"

PlanLaunch = Callable[[str, Serve, int, str], Launch]
"""Launch of a repository for addresses and ports, a number of visible GPUs and a prefix of shared memory files."""


@dataclass(frozen=True)
class GpuHost:
    """What is served here and how. ``gpus`` are the host's indices that a process sees, ``mounts`` what it reads.

    ``ranks`` is the number of processes that share memory: those of the engines and the orchestrator.
    """

    runner: Runner
    workspace: Path
    repository: Path
    plan: PlanLaunch
    gpus: tuple[int, ...]
    ranks: int
    mounts: tuple[Path, ...]

    def command(self, address: str, ports: Mapping[str, int], shm_prefix: str) -> StartCommand:
        """How to start it with the workspace as working directory; a link is made there for a path that needs one."""
        repository = link_plain_path(self.repository, self.workspace, REPOSITORY_LINK)
        is_native = self.runner.server is not None
        serve = Serve(
            host=address if is_native else ALL_ADDRESSES,
            http_port=ports["http_port"],
            grpc_port=ports["grpc_port"],
            metrics_port=ports["metrics_port"],
        )
        launch = self.plan(repository, serve, len(self.gpus), shm_prefix)
        stop_timeout_s = EXIT_TIMEOUT_S + STOP_MARGIN_S
        if is_native:
            here = {TRITONSERVER: str(self.runner.server)}
            ranks = tuple(tuple(here.get(word, word) for word in argv) for argv in launch.ranks)
            environment = {**os.environ, **launch.environment}
            return StartCommand(replace(launch, ranks=ranks).command(), environment, None, stop_timeout_s)
        name = f"trtspec-{shm_prefix.strip('_').rpartition('_')[2]}"
        run = ContainerRun(
            image=self.runner.image,
            gpus=self.gpus,
            ranks=self.ranks,
            address=address,
            ports=tuple(ports.values()),
            mounts=self.mounts,
            environment=launch.environment,
            name=name,
            workdir=self.workspace,
        )
        return StartCommand((*container_argv(run), *launch.command()), dict(os.environ), name, stop_timeout_s)
