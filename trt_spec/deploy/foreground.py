"""A server that lives as long as the command that started it."""

from __future__ import annotations

import signal
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
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asked for SIGHUP to be ignored
            signal.signal(number, signal.default_int_handler)
    with running_triton(options, on_wait) as server:
        on_ready(server)
        try:
            while (failure := judge_server(server)) is None:
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            return
        raise failure
