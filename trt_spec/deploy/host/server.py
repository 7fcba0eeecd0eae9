"""A running server: what server.json records of it, and how it is ended."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from trt_spec.deploy.host.container import CONTAINER_PATTERN, remove_container
from trt_spec.deploy.host.process_group import kill_processes, read_start_ticks, send_signal, wait_for_exit
from trt_spec.errors import EnvironmentMissing
from trt_spec.plan.launch import SHM_PREFIX
from trt_spec.util.files import write_text_atomic

SERVER_FILE = "server.json"
LOG_FILE = "triton.log"
OPENAI_LOG_FILE = "openai.log"
SHM_DIR = Path("/dev/shm")
ENDPOINT_STOP_TIMEOUT_S = 12.0  # its answers that run may end; it gives them ten seconds
STOP_TIMEOUT_S = 20.0  # what a server gets before it is killed, unless its record says otherwise
SHM_PREFIX_PATTERN = re.compile(rf"{SHM_PREFIX}[0-9a-f]{{8,}}_")


def shm_prefix_of(token: str) -> str:
    """How the shared memory files of the server begin that ``token``, hexadecimal digits, stands for."""
    return f"{SHM_PREFIX}{token}_"


@dataclass(frozen=True)
class RunningServer:
    """One server, identified by pid and start time of the process that leads its session.

    That is tritonserver itself, mpirun, or the client that holds a container. ``shm_prefix`` begins the names of shared
    memory files and is the mark of all its processes. ``container`` is None where it runs natively.
    """

    pid: int
    start_ticks: int
    host: str  # the IPv4 address bound
    http_port: int
    grpc_port: int
    metrics_port: int
    repository: str
    log: str
    shm_prefix: str
    deployment_id: str | None = None  # of the repository, as it was at the start
    container: str | None = None
    stop_timeout_s: float = STOP_TIMEOUT_S
    openai_port: int | None = None
    openai_pid: int | None = None  # of the endpoint that speaks the OpenAI API, a process of its own
    openai_start_ticks: int | None = None

    @property
    def ports(self) -> dict[str, int]:
        """Port numbers by what answers there, as of a spec's ``serve``."""
        return {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}

    @property
    def reach_host(self) -> str:
        """The address to connect to: this machine, where the server listens on all addresses."""
        return "127.0.0.1" if self.host == "0.0.0.0" else self.host

    @property
    def http_url(self) -> str:
        """Base of the HTTP endpoints."""
        return f"http://{self.reach_host}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """host:port as gRPC clients take it."""
        return f"{self.reach_host}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """Address of the Prometheus metrics."""
        return f"http://{self.reach_host}:{self.metrics_port}/metrics"

    @property
    def openai_url(self) -> str | None:
        """Base of the OpenAI endpoint, without /v1; None where there is none."""
        return None if self.openai_port is None else f"http://{self.reach_host}:{self.openai_port}"

    def is_endpoint_alive(self) -> bool:
        """Whether there is an OpenAI endpoint, and this very process still runs."""
        return self.openai_pid is not None and read_start_ticks(self.openai_pid) == self.openai_start_ticks

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return read_start_ticks(self.pid) == self.start_ticks


def write_server(workspace: Path, server: RunningServer) -> None:
    """Record ``server`` in the workspace, atomically."""
    write_text_atomic(workspace / SERVER_FILE, json.dumps(asdict(server), indent=1) + "\n")


def load_server(workspace: Path) -> RunningServer | None:
    """Return the server recorded in a workspace, alive or not; None where none is recorded, or not by us."""
    try:
        document = json.loads((workspace / SERVER_FILE).read_text(encoding="utf-8"))
        server = RunningServer(**document)
    except (OSError, ValueError, TypeError):
        return None
    # Processes are signalled and files removed by these two, so nothing but our own form is believed.
    is_ours = (
        isinstance(server.pid, int)
        and server.pid > 1
        and SHM_PREFIX_PATTERN.fullmatch(str(server.shm_prefix)) is not None
        and (server.container is None or CONTAINER_PATTERN.fullmatch(str(server.container)) is not None)
        and isinstance(server.stop_timeout_s, int | float)
        and (server.openai_pid is None or (isinstance(server.openai_pid, int) and server.openai_pid > 1))
    )
    return server if is_ours else None


def end_server(server: RunningServer, timeout_s: float | None = None) -> None:
    """End a server and everything it started, and remove its shared memory; safe to repeat, and for one long gone.

    The server is asked first, so that its models finish; what is left after ``timeout_s`` seconds (the server's own
    time limit if None), or at Ctrl-C while waiting, is killed. Raises EnvironmentMissing if its container stays.
    """
    timeout_s = server.stop_timeout_s if timeout_s is None else timeout_s
    leads_session = False
    try:
        _end_endpoint(server)
        if leads_session := server.is_alive():  # then whatever is in there is its own
            send_signal(server.pid, signal.SIGTERM)
            wait_for_exit(server.pid, server.start_ticks, timeout_s)
    finally:
        kill_processes(server.pid, server.shm_prefix, whole_session=leads_session)
        remove_shared_memory(server.shm_prefix)
        if server.container is not None:
            remove_container(server.container)


def _end_endpoint(server: RunningServer) -> None:
    """First of all, so that nobody is served by half; what stays behind bears the server's mark."""
    if server.openai_pid is not None and server.is_endpoint_alive():
        send_signal(server.openai_pid, signal.SIGTERM)
        wait_for_exit(server.openai_pid, server.openai_start_ticks or 0, ENDPOINT_STOP_TIMEOUT_S)


def remove_shared_memory(prefix: str) -> None:
    """Remove the shared memory files of one server: a killed one leaves them behind, 1 MiB or more for each model."""
    for path in SHM_DIR.glob(f"{prefix}*"):
        path.unlink(missing_ok=True)


def stop_triton(workspace: Path) -> RunningServer | None:
    """Stop the server that a workspace records and forget it; return it if it was running, else None.

    Nothing recorded, a server that is gone and one that was killed are all fine: their leftovers are removed.
    """
    server = load_server(workspace)
    was_alive = server is not None and server.is_alive()
    try:
        if server is not None:
            end_server(server)
    except EnvironmentMissing:
        raise  # something runs still, so the record stays for the next attempt
    except BaseException:
        (workspace / SERVER_FILE).unlink(missing_ok=True)
        raise
    (workspace / SERVER_FILE).unlink(missing_ok=True)
    return server if was_alive else None
