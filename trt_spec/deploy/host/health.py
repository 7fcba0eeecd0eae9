"""Whether a server answers, and whether it is really the one that was started."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from trt_spec.deploy.host.listeners import is_listening
from trt_spec.deploy.host.log_causes import find_cause_in_log
from trt_spec.deploy.host.log_digest import read_log_tail, render_log_digest
from trt_spec.deploy.host.process_group import list_processes
from trt_spec.deploy.host.server import RunningServer
from trt_spec.errors import StepFailed
from trt_spec.plan.launch import READY_PATH

_PROBE_TIMEOUT_S = 2.0


def is_ready(server: RunningServer) -> bool:
    """Whether what listens on the server's HTTP port says that all models are ready."""
    # No proxy: urllib would send even a request to this machine through one that the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server.http_url}{READY_PATH}", timeout=_PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def owns_ports(server: RunningServer) -> bool:
    """Whether the server's own processes listen on all of its ports.

    Two servers started at once on the same ports both see a ready one, and all ports are bound a moment after the
    first. A container's ports are docker's, which refuses one that is taken.
    """
    if server.container is not None:
        return True
    pids = [process.pid for process in list_processes(server.pid, server.shm_prefix)]
    return all(is_listening(pids, port) for port in server.ports.values())


def explain_failure(server: RunningServer, found: str, remedy: str) -> StepFailed:
    """``found`` with what the log says of it; a cause that is known comes with its code and its own remedy."""
    text = read_log_tail(Path(server.log))
    digest = render_log_digest(text)
    cause = find_cause_in_log(text)
    named = "" if cause is None else f" {cause.sentence} [{cause.code}]."
    said = f" Its log says: {' | '.join(digest.splitlines())}." if digest else " Its log is empty."
    return StepFailed(
        f"{found}.{named}{said}",
        remedy=f"{remedy if cause is None else cause.remedy} The whole log: {server.log}.",
        step="serve",
        log_path=Path(server.log),
    )
