"""The command that starts the embedded Triton of the nvidia-pytriton wheel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trt_spec.deploy.server import EXIT_TIMEOUT_S
from trt_spec.deploy.shell_paths import link_plain_path
from trt_spec.deploy.start_command import StartCommand
from trt_spec.deploy.triton import TritonInstall
from trt_spec.plan.launch import PYTHON_BACKEND_THREADS

REPOSITORY_LINK = "served-repository"
BACKENDS_LINK = "served-backends"


def embedded_command(
    install: TritonInstall,
    workspace: Path,
    repository: Path,
    backends: Path,
    address: str,
    ports: Mapping[str, int],
    shm_prefix: str,
) -> StartCommand:
    """How to start it with ``workspace`` as the working directory; links are made there for paths that need one."""
    argv = (
        str(install.server),
        f"--model-repository={link_plain_path(repository, workspace, REPOSITORY_LINK)}",
        f"--backend-directory={link_plain_path(backends, workspace, BACKENDS_LINK)}",
        "--model-control-mode=none",
        "--strict-readiness=true",
        "--disable-auto-complete-config",  # our configurations are complete; else every model is loaded twice
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        f"--http-address={address}",
        f"--grpc-address={address}",
        f"--metrics-address={address}",
        f"--http-port={ports['http_port']}",
        f"--grpc-port={ports['grpc_port']}",
        f"--metrics-port={ports['metrics_port']}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        f"--backend-config=python,thread-pool-size={PYTHON_BACKEND_THREADS}",
    )
    return StartCommand(argv, install.resolve_environment(dict(os.environ)))
