"""Watching a server that is ready: it must stay whole, for Triton reports ready with a dead model process in it."""

from __future__ import annotations

import time
from collections.abc import Collection

from trt_spec.deploy.host.health import explain_failure, is_ready
from trt_spec.deploy.host.openai_endpoint import judge_endpoint
from trt_spec.deploy.host.process_group import Process, list_processes, read_start_ticks
from trt_spec.deploy.host.server import RunningServer
from trt_spec.errors import StepFailed

READY_LOST_S = 30.0  # a server that is busy may miss a probe, one that lost a model stays like that
PROBE_EVERY_S = 2.0
STUB = "triton_python_backend_stub"
# What a server is made of; what the code of models starts besides may come and go.
PARTS = ("tritonserver", STUB, "trtllmExecutorWorker")
_AGAIN = "Look at the log, then start it again."


class Supervision:
    """Looks at one server again and again; make it once the server is ready, when all of its parts are there."""

    def __init__(self, server: RunningServer, ready_lost_s: float = READY_LOST_S) -> None:
        self._server = server
        self._ready_lost_s = ready_lost_s
        self._parts = find_parts(server)
        self._last_ready_s = self._last_probe_s = time.monotonic()

    def judge(self) -> StepFailed | None:
        """Return what is wrong with the server now, None while it is whole."""
        server = self._server
        if not server.is_alive():
            return judge_server(server)
        for part in self._parts:
            if read_start_ticks(part.pid) != part.start_ticks:
                return explain_failure(server, f"{_describe(part)} has ended, Triton itself has not", _AGAIN)
        if (failure := judge_endpoint(server)) is not None:
            return failure
        now = time.monotonic()
        if now - self._last_probe_s >= PROBE_EVERY_S:
            self._last_probe_s = now
            if is_ready(server):
                self._last_ready_s = time.monotonic()
        if now - self._last_ready_s > self._ready_lost_s:
            found = f"Triton (process {server.pid}) has not been ready for {self._ready_lost_s:g} s"
            return explain_failure(server, found, _AGAIN)
        return None


def judge_server(server: RunningServer) -> StepFailed | None:
    """Return why a server that was running is gone, None while its first process runs."""
    if server.is_alive():
        return None
    return explain_failure(server, f"Triton (process {server.pid}) has ended", _AGAIN)


def find_parts(server: RunningServer) -> tuple[Process, ...]:
    """The processes that a server cannot do without: MPI ranks, models, workers of engines. None in a container.

    A rank is what mpirun started, whatever it is called. A fork of a model's process has the name of its parent, and
    may end.
    """
    processes = list_processes(server.pid, server.shm_prefix)
    stubs = {process.pid for process in processes if STUB in process.programs}
    return tuple(process for process in processes if _is_part(process, server, stubs))


def _is_part(process: Process, server: RunningServer, stubs: Collection[int]) -> bool:
    if process.parent in stubs:
        return False
    is_rank = process.parent == server.pid and server.container is None
    return is_rank or any(name in PARTS for name in process.programs)


def _describe(part: Process) -> str:
    """A model's process names its model.py."""
    name = next((name for name in part.programs if name in PARTS), part.programs[-1])
    model = next((word for word in part.command if word.endswith("/model.py")), "")
    return f"Process {part.pid} ({name}{' of ' + model if model else ''})"
