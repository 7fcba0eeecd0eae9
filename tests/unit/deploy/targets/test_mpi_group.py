"""Ranks over several pods without ssh: a stand-in mpirun calls the launch agent as Open MPI does.

What Open MPI 4.1.8 and 5.0.11 pass to an agent was seen in network namespaces: the agent's words, a host, which version
4 cuts at its first dot, and the daemon's command in one or several words.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from trt_spec.deploy.targets import mpi_group
from trt_spec.deploy.targets.mpi_group import Board, agent, is_address_of, serve_board

SCRIPT = Path(mpi_group.__file__)
LEAD = "import sys, mpi_group; sys.exit(mpi_group.lead(int(sys.argv[1]), sys.argv[2:], address='127.0.0.1'))"
# Calls the agent for one host, as plm_rsh does, and ends with its exit code.
MPIRUN = """
import os, shlex, subprocess, sys
agent = shlex.split(os.environ[sys.argv[1]])
sys.exit(subprocess.call([*agent, sys.argv[2], *sys.argv[3:]]))
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def board(port: int) -> Iterator[Board]:
    board = Board()
    server = serve_board("127.0.0.1", port, board)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield board
    server.shutdown()
    server.server_close()


STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(words: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process in a group of its own, which ends with the test at the latest."""
    STARTED.append(subprocess.Popen(words, env=environment, start_new_session=True))
    return STARTED[-1]


def start_leader(port: int, variable: str, host: str, *command: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", MPIRUN, variable, host, *command]
    path = {**os.environ, "PYTHONPATH": str(SCRIPT.parent)}
    return start([sys.executable, "-c", LEAD, str(port), *words], path)


def start_worker(port: int, host: str = "localhost") -> subprocess.Popen[bytes]:
    return start([sys.executable, str(SCRIPT), "follow", str(port), "127.0.0.1", host], dict(os.environ))


def request(port: int, host: str, method: str = "GET", data: bytes | None = None) -> tuple[int, bytes]:
    call = urllib.request.Request(f"http://127.0.0.1:{port}/{host}", data=data, method=method)
    try:
        with mpi_group.direct().open(call, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize("variable", ["OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"])
def test_a_worker_runs_the_command_and_its_exit_code_comes_back(port: int, variable: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    leader = start_leader(port, variable, "localhost", "echo", f"'two words' > {seen};", "exit 7")
    worker = start_worker(port)
    assert leader.wait(20) == 7
    assert worker.wait(20) == 7
    assert seen.read_text() == "two words\n"


def test_a_worker_that_is_there_first_waits_for_its_leader(port: int) -> None:
    worker = start_worker(port)
    time.sleep(0.3)
    assert worker.poll() is None
    assert start_leader(port, "OMPI_MCA_plm_rsh_agent", "localhost", "exit 0").wait(20) == 0
    assert worker.wait(20) == 0


def test_a_waiting_worker_stops_at_once(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as leader:
        leader.settimeout(20)
        worker = start_worker(port)
        connection, _ = leader.accept()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 128 + signal.SIGTERM
        connection.close()


def test_a_signal_reaches_the_command_of_a_worker(port: int, tmp_path: Path) -> None:
    up, ended = tmp_path / "up", tmp_path / "ended"
    command = f"trap 'touch {ended}; exit 3' TERM; touch {up}; while :; do sleep 0.05; done"
    leader, worker = start_leader(port, "OMPI_MCA_plm_rsh_agent", "localhost", command), start_worker(port)
    deadline = time.monotonic() + 20
    while not up.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    worker.send_signal(signal.SIGTERM)
    assert (leader.wait(20), worker.wait(20)) == (3, 3)
    assert ended.exists()


def test_open_mpi_4_cuts_the_names_of_hosts(board: Board, port: int) -> None:
    ended: list[int] = []
    waiting = threading.Thread(target=lambda: ended.append(agent(port, "localhost", "orted -x")), daemon=True)
    waiting.start()
    deadline = time.monotonic() + 5
    while board.read("localhost.localdomain") is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert board.read("localhost.localdomain") == b"orted -x"
    board.end("localhost.localdomain", 5)
    waiting.join(5)
    assert ended == [5]


def test_a_command_is_given_to_the_pod_of_that_name_alone(board: Board, port: int) -> None:
    threading.Thread(target=agent, args=(port, "other.invalid", "orted"), daemon=True).start()
    time.sleep(0.1)
    assert board.read("other.invalid") == b"orted"
    assert request(port, "other.invalid") == (404, b"")
    assert request(port, "other.invalid", "POST", b"0")[0] == 403
    board.end("other.invalid", 0)


def test_only_the_leader_itself_leaves_commands(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_group, "AGENT_ADDRESS", "127.0.0.2")
    server = serve_board("127.0.0.1", port, board := Board())
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        assert request(port, "localhost", "PUT", b"rm -rf /")[0] == 403
        assert board.read("localhost") is None
    finally:
        server.shutdown()
        server.server_close()


def test_a_malformed_exit_code_ends_nothing(board: Board, port: int) -> None:
    assert request(port, "localhost", "POST", b"x")[0] == 400
    assert request(port, "localhost", "POST", b"")[0] == 400


def test_an_agent_without_a_leader_fails_as_ssh_does(port: int) -> None:
    assert agent(port, "localhost", "orted") == 255


def test_addresses_of_names() -> None:
    assert is_address_of("localhost", "127.0.0.1")
    assert not is_address_of("localhost", "10.0.0.1")
    assert not is_address_of("no-such-pod.invalid", "127.0.0.1")
    assert not is_address_of("x" * 300, "127.0.0.1")


@pytest.mark.parametrize("words", [[], ["lead", "1"], ["follow", "1"], ["agent", "host"], ["other"]])
def test_wrong_words_print_what_is_meant(words: list[str]) -> None:
    ended = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2 and "mpi_group.py lead PORT" in ended.stderr


def test_the_script_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    copy = tmp_path / "mpi_group.py"
    copy.write_bytes(SCRIPT.read_bytes())
    ended = subprocess.run([sys.executable, "-I", "-S", str(copy)], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
