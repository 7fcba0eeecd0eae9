"""Starts Open MPI over the pods of one group without ssh, without kubectl and without rights in the cluster.

This file is written beside the Kubernetes objects and runs inside the pods, so it imports the standard library only.
mpirun starts its daemon on another host by calling a launch agent (ssh as a rule) with the host's name and a command.
Here the agent leaves the command with the leader, the pod of that name fetches it, runs it and tells how it ended:

    leader  python3 mpi_group.py lead PORT mpirun ...
    worker  python3 mpi_group.py follow PORT LEADER_HOST OWN_HOST

A worker is asked nothing and listens to nobody. The leader answers only the pod whose address the asked name has.
"""

from __future__ import annotations

import http.server
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

AGENT_ADDRESS = "127.0.0.1"
PORT_VARIABLE = "TRTSPEC_GROUP_PORT"
POLL_S = 1.0
ANSWER_TIMEOUT_S = 5.0
MAX_BODY_BYTES = 1 << 20
AGENT_FAILED = 255  # what ssh returns when it could not reach the host


def agent_environment(agent: str) -> dict[str, str]:
    """What makes mpirun call ``agent``, from the leader only, and keep its daemons in the foreground of their pods.

    Open MPI 4 reads OMPI_MCA_, Open MPI 5 (PRRTE) reads PRTE_MCA_; each ignores what is for the other.
    """
    return {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
    }


class Board:
    """Commands by host, and how they ended; shared by the agents' and the workers' requests."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commands: dict[str, bytes] = {}
        self._ends: dict[str, int] = {}

    def leave(self, host: str, command: bytes) -> int:
        """Leave a command for a host and wait for its exit code."""
        pod = pod_of(host)
        with self._changed:
            self._commands[pod] = command
            self._changed.wait_for(lambda: pod in self._ends)
            return self._ends[pod]

    def read(self, host: str) -> bytes | None:
        """The command of a host, as often as it asks: an answer may be lost on the way."""
        with self._changed:
            return self._commands.get(pod_of(host))

    def end(self, host: str, code: int) -> None:
        with self._changed:
            self._ends[pod_of(host)] = code
            self._changed.notify_all()


def serve_board(address: str, port: int, board: Board) -> http.server.ThreadingHTTPServer:
    """The leader's server, not yet running: GET /HOST reads, PUT /HOST leaves a command, POST /HOST tells its end."""

    class Requests(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.path.strip("/")
            command = board.read(host) if is_address_of(host, self.client_address[0]) else None
            self._answer(404 if command is None else 200, command or b"")

        def do_PUT(self) -> None:
            if self.client_address[0] != AGENT_ADDRESS:
                self._answer(403, b"")
                return
            self._answer(200, str(board.leave(self.path.strip("/"), self._body())).encode())

        def do_POST(self) -> None:
            host = self.path.strip("/")
            if not is_address_of(host, self.client_address[0]):
                self._answer(403, b"")
                return
            code = self._body()
            if code.isdigit():
                board.end(host, int(code))
            self._answer(200 if code.isdigit() else 400, b"")

        def _body(self) -> bytes:
            return self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MAX_BODY_BYTES))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Polls every second are no news."""

    class Server(http.server.ThreadingHTTPServer):
        def server_bind(self) -> None:
            socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks a name server for this host's name

    return Server((address, port), Requests)


def pod_of(host: str) -> str:
    """The first label: Open MPI 4 cuts host names down to it, Open MPI 5 does not."""
    return host.partition(".")[0]


def is_address_of(host: str, address: str) -> bool:
    """Whether the name has this address; False while the name is not known yet."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return address in {str(entry[4][0]) for entry in found}


def lead(port: int, command: Sequence[str], address: str = "") -> int:
    """Run mpirun with this file as its launch agent; its exit code. Listens on every address unless one is given."""
    server = serve_board(address, port, Board())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    agent = f"{sys.executable} {Path(__file__).resolve()} agent"
    environment = {**os.environ, **agent_environment(agent), PORT_VARIABLE: str(port)}
    return run(list(command), environment)


def agent(port: int, host: str, command: str) -> int:
    """What mpirun calls in place of ssh: returns when the command has ended on its host, with its exit code."""
    request = urllib.request.Request(f"http://{AGENT_ADDRESS}:{port}/{host}", data=command.encode(), method="PUT")
    try:
        with direct().open(request) as answer:
            return int(answer.read())
    except (OSError, ValueError):
        return AGENT_FAILED


def follow(port: int, leader: str, host: str, sleep: Callable[[float], None] = time.sleep) -> int:
    """Wait for the leader's command for this host, run it, report its exit code and return it."""
    url = f"http://{leader}:{port}/{host}"
    while (command := _fetch(url)) is None:
        sleep(POLL_S)
    code = run(["/bin/sh", "-c", command], dict(os.environ))
    report = urllib.request.Request(url, data=str(code).encode(), method="POST")
    try:
        direct().open(report, timeout=ANSWER_TIMEOUT_S).close()
    except OSError:
        print("mpi_group: the leader is gone", file=sys.stderr, flush=True)
    return code


def _fetch(url: str) -> str | None:
    try:
        with direct().open(url, timeout=ANSWER_TIMEOUT_S) as answer:
            return bytes(answer.read()).decode()
    except OSError:  # the leader has no address yet, does not listen yet, or has no command yet
        return None


def direct() -> urllib.request.OpenerDirector:
    """Pods of one group never speak through a proxy that the image or the cluster may name."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def run(command: list[str], environment: dict[str, str]) -> int:
    """Run a child, pass SIGTERM and SIGINT on to it, and return its exit code as a shell would."""
    with subprocess.Popen(command, env=environment) as child:

        def pass_on(number: int, frame: FrameType | None) -> None:
            child.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)
        code = child.wait()
    return code if code >= 0 else 128 - code


def stop_waiting(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # as process 1 of a pod, the default action of a signal would be none


def main(words: Sequence[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop_waiting)
    match list(words):
        case ["lead", port, *command] if command:
            return lead(int(port), command)
        case ["follow", port, leader, host]:
            return follow(int(port), leader, host)
        case ["agent", host, *command] if command:
            return agent(int(os.environ[PORT_VARIABLE]), host, " ".join(command))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
