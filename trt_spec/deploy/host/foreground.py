"""A server that lives as long as the command that started it."""

from __future__ import annotations

import time
from collections.abc import Callable

from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.host.supervise import READY_LOST_S, Supervision

_POLL_S = 0.5


def run_until_stopped(
    options: LaunchOptions,
    on_ready: Callable[[RunningServer], None],
    on_wait: Callable[[float], None] | None = None,
    ready_lost_s: float = READY_LOST_S,
) -> None:
    """Run Triton until Ctrl-C or SIGTERM, then stop it and return.

    Raises StepFailed, with everything stopped, if it ends on its own, if one of its processes does, or if it is not
    ready for ``ready_lost_s`` seconds. The same signals during the start stop it as well, and raise KeyboardInterrupt.
    Main thread only.
    """
    with running_triton(options, on_wait) as server:
        try:
            supervision = Supervision(server, ready_lost_s)
            on_ready(server)
            while (failure := supervision.judge()) is None:
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            return
        raise failure
