"""A server that lives as long as the command that started it."""

from __future__ import annotations

import time
from collections.abc import Callable

from trt_spec.deploy.launch import LaunchOptions, judge_server, running_triton
from trt_spec.deploy.server import RunningServer

_POLL_S = 0.5


def run_until_stopped(
    options: LaunchOptions,
    on_ready: Callable[[RunningServer], None],
    on_wait: Callable[[float], None] | None = None,
) -> None:
    """Run Triton until Ctrl-C or SIGTERM, then stop it and return. Raises StepFailed if it ends on its own.

    The same signals during the start stop it as well, and raise KeyboardInterrupt. Main thread only.
    """
    with running_triton(options, on_wait) as server:
        try:
            on_ready(server)
            while (failure := judge_server(server)) is None:
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            return
        raise failure
