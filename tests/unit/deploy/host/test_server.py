"""Ending servers, on plain processes that stand in for Triton and its stubs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from trt_spec.deploy.host import server as server_module
from trt_spec.deploy.host.process_group import list_processes, read_start_ticks, wait_for_exit
from trt_spec.deploy.host.server import SERVER_FILE, RunningServer, end_server, load_server, stop_triton, write_server

PREFIX = "trtspec_0123abcd_"
# A leader that ignores SIGTERM if told so, with a child that carries the mark, as stubs do, and one that does not.
LEADER = """
import signal, subprocess, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = "import time; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", sleep, sys.argv[1] + "uuid"])
subprocess.Popen([sys.executable, "-c", sleep])
print("up", flush=True)
time.sleep(600)
"""


def list_pids(session: int) -> list[int]:
    return [process.pid for process in list_processes(session, PREFIX)]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    shm = tmp_path / "shm"
    shm.mkdir()
    (shm / f"{PREFIX}a").touch()
    (shm / "trtspec_ffffffff_b").touch()
    monkeypatch.setattr(server_module, "SHM_DIR", shm)
    started: list[subprocess.Popen[str]] = []

    def run(manner: str = "polite") -> RunningServer:
        process = subprocess.Popen(
            [sys.executable, "-c", LEADER, PREFIX, manner], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        ticks = read_start_ticks(process.pid)
        assert ticks is not None
        return RunningServer(process.pid, ticks, "127.0.0.1", 1, 2, 3, "repository", "log", PREFIX)

    yield run
    for process in started:
        for pid in list_pids(process.pid):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        process.wait()


def left_in_shm(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "shm").iterdir()]


@pytest.mark.parametrize("manner", ["polite", "stubborn"])
def test_the_whole_group_ends(start, tmp_path: Path, manner: str) -> None:
    server = start(manner)
    assert len(list_pids(server.pid)) == 3
    end_server(server, timeout_s=0.5)
    assert list_pids(server.pid) == []
    assert not server.is_alive()
    assert left_in_shm(tmp_path) == ["trtspec_ffffffff_b"]
    end_server(server)


def test_stubs_that_outlive_a_killed_server_end_too(start, tmp_path: Path) -> None:
    server = start()
    subprocess.run(["kill", "-KILL", str(server.pid)], check=True)
    assert wait_for_exit(server.pid, server.start_ticks, 10)
    marked = [pid for pid in list_pids(server.pid) if PREFIX in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(marked) == 1
    end_server(server)
    # A process without the mark might be someone else's by now, in a group that got the same number.
    assert len(list_pids(server.pid)) == 1
    assert left_in_shm(tmp_path) == ["trtspec_ffffffff_b"]


def test_a_process_of_the_same_pid_but_another_start_is_left_alone(start) -> None:
    server = start()
    other = replace(server, start_ticks=server.start_ticks - 1, shm_prefix="trtspec_99999999_")
    assert not other.is_alive()
    end_server(other)
    assert len(list_pids(server.pid)) == 3


def test_ctrl_c_while_stopping_kills_at_once(start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start("stubborn")

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(server_module, "wait_for_exit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        end_server(server)
    assert list_pids(server.pid) == []


def test_stop_is_idempotent(start, tmp_path: Path) -> None:
    server = start()
    write_server(tmp_path, server)
    assert load_server(tmp_path) == server
    assert stop_triton(tmp_path) == server
    assert not (tmp_path / SERVER_FILE).exists()
    assert stop_triton(tmp_path) is None
    assert stop_triton(tmp_path / "never was") is None


def test_stop_of_a_stale_record(start, tmp_path: Path) -> None:
    server = start()
    end_server(server)
    write_server(tmp_path, server)
    assert stop_triton(tmp_path) is None
    assert not (tmp_path / SERVER_FILE).exists()


@pytest.mark.parametrize(
    "changes", [{"shm_prefix": ""}, {"shm_prefix": "trtspec_"}, {"shm_prefix": "*"}, {"pid": 1}, {"pid": "9"}, {"x": 1}]
)
def test_a_record_that_is_not_ours_is_not_believed(tmp_path: Path, changes: dict[str, object]) -> None:
    good = asdict(RunningServer(99999999, 1, "127.0.0.1", 1, 2, 3, "repository", "log", PREFIX))
    (tmp_path / SERVER_FILE).write_text(json.dumps(good))
    assert load_server(tmp_path) is not None
    (tmp_path / SERVER_FILE).write_text(json.dumps({**good, **changes}))
    assert load_server(tmp_path) is None
    (tmp_path / SERVER_FILE).write_text("{")
    assert load_server(tmp_path) is None


def test_endpoints() -> None:
    server = RunningServer(5, 1, "0.0.0.0", 8000, 8001, 8002, "repository", "log", PREFIX)
    assert server.http_url == "http://127.0.0.1:8000"
    assert server.grpc_url == "127.0.0.1:8001"
    assert server.metrics_url == "http://127.0.0.1:8002/metrics"
    assert replace(server, host="192.0.2.7").grpc_url == "192.0.2.7:8001"


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    ticks = read_start_ticks(process.pid)
    assert ticks is not None
    process.send_signal(signal.SIGKILL)
    while read_start_ticks(process.pid) is not None:
        time.sleep(0.01)
    assert Path(f"/proc/{process.pid}").exists()
    process.wait()
