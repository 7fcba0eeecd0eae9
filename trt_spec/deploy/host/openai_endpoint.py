"""The OpenAI endpoint beside a Triton that is ready: a process of its own, started, watched and ended with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from trt_spec.deploy.host.interrupts import deferred_signals
from trt_spec.deploy.host.listeners import is_listening
from trt_spec.deploy.host.log_digest import read_log_tail
from trt_spec.deploy.host.process_group import MARK_VARIABLE, read_start_ticks, reap
from trt_spec.deploy.host.server import OPENAI_LOG_FILE, RunningServer, write_server
from trt_spec.deploy.ownership import read_marker
from trt_spec.errors import EnvironmentMissing, StepFailed
from trt_spec.plan.openai_launch import EXTRA, HEALTH_PATH, MODULE, PACKAGES, openai_arguments

READY_TIMEOUT_S = 60.0
_POLL_S = 0.1
_PROBE_TIMEOUT_S = 2.0
_TOLD_CHARS = 600


def check_endpoint_installed() -> None:
    """Raise EnvironmentMissing unless the packages that the endpoint imports are there."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise EnvironmentMissing(
            f"The OpenAI endpoint (serve.openai_port) needs the Python packages {', '.join(missing)}.",
            remedy=f"Install them with: {EXTRA}.",
        )


def start_endpoint(server: RunningServer, workspace: Path, port: int) -> RunningServer:
    """Start the endpoint of ``server`` on ``port`` and return the record of both, once it answers.

    Raises StepFailed with what its log says if it ends or does not answer in time; the caller ends ``server`` then.
    """
    log = workspace / OPENAI_LOG_FILE
    arguments = openai_arguments(
        triton=server.grpc_url,
        repository=server.repository,
        name=(read_marker(Path(server.repository)) or {}).get("deployment") or workspace.name,
        host=server.host,
        port=port,
    )
    with deferred_signals(), log.open("wb") as output:  # until it is on record, nobody could find and stop it
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=workspace,
            env={**os.environ, MARK_VARIABLE: server.shm_prefix},
            start_new_session=True,
        )
        process.returncode = 0  # from here on it is known by its record
        started = replace(
            server, openai_port=port, openai_pid=process.pid, openai_start_ticks=read_start_ticks(process.pid) or 0
        )
        write_server(workspace, started)
    _wait_until_ready(started, log)
    return started


def judge_endpoint(server: RunningServer) -> StepFailed | None:
    """Return why the endpoint of ``server`` is gone; None while it runs, and where there is none."""
    if server.openai_pid is None:
        return None
    reap(server.openai_pid)
    if server.is_endpoint_alive():
        return None
    return _explain(Path(server.log).with_name(OPENAI_LOG_FILE), f"process {server.openai_pid} has ended")


def _wait_until_ready(server: RunningServer, log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not (_is_ready(server) and _owns_port(server)):
        if (failure := judge_endpoint(server)) is not None:
            raise failure
        if time.monotonic() > deadline:
            raise _explain(log, f"it did not answer within {READY_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def _is_ready(server: RunningServer) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server.openai_url}{HEALTH_PATH}", timeout=_PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _owns_port(server: RunningServer) -> bool:
    assert server.openai_pid is not None and server.openai_port is not None
    return is_listening([server.openai_pid], server.openai_port)


def _explain(log: Path, found: str) -> StepFailed:
    said = " ".join(read_log_tail(log).split())[-_TOLD_CHARS:]
    return StepFailed(
        f"The OpenAI endpoint failed: {found}.{f' Its log says: {said}' if said else ' Its log is empty.'}",
        remedy=f"Correct what it names, then start again. The whole log: {log}.",
        step="serve",
        log_path=log,
    )
