"""The command that starts the embedded Triton of the nvidia-pytriton wheel."""

from __future__ import annotations

import os
from pathlib import Path

from trt_spec.deploy.host.server import STOP_TIMEOUT_S, shm_prefix_of
from trt_spec.deploy.host.start_command import StartCommand
from trt_spec.deploy.host.triton import TritonInstall
from trt_spec.deploy.shell_paths import link_plain_path
from trt_spec.plan.launch import python_backend_threads, server_argv
from trt_spec.spec.model import Serve

REPOSITORY_LINK = "served-repository"
BACKENDS_LINK = "served-backends"
MODELS_END_S = int(STOP_TIMEOUT_S) - 5  # what Triton gives its models to end, before it is killed itself


def embedded_command(
    install: TritonInstall,
    workspace: Path,
    repository: Path,
    backends: Path,
    serve: Serve,
    token: str,
    requests: int,
) -> StartCommand:
    """How to start it with ``workspace`` as the working directory; links are made there for paths that need one.

    ``requests`` is how many are answered at a time.
    """
    argv = (
        *server_argv(
            str(install.server),
            link_plain_path(repository, workspace, REPOSITORY_LINK),
            serve,
            shm_prefix_of(token),
            threads=python_backend_threads(requests),
            exit_timeout_s=MODELS_END_S,
        ),
        f"--backend-directory={link_plain_path(backends, workspace, BACKENDS_LINK)}",
        "--model-control-mode=none",
    )
    return StartCommand(argv, install.resolve_environment(dict(os.environ)))
