"""`trtspec serve` and `trtspec stop` as a user runs them, with the real Triton."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trt_spec.deploy.host.process_group import list_processes, read_start_ticks
from trt_spec.deploy.host.server import SHM_DIR, RunningServer, load_server, stop_triton
from trt_spec.deploy.host.supervise import find_parts
from trt_spec.deploy.pbtxt import InstanceGroup, ModelConfig, Tensor, render_pbtxt

ROOT = Path(__file__).parents[2]
IDLE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "repository"
    (folder / "idle" / "1").mkdir(parents=True)
    (folder / "idle" / "1" / "model.py").write_text(IDLE)
    config = ModelConfig(
        name="idle",
        backend="python",
        max_batch_size=0,
        inputs=(Tensor("x", "INT32", (1,)),),
        outputs=(Tensor("y", "INT32", (1,)),),
        instance_group=InstanceGroup(),
    )
    (folder / "idle" / "config.pbtxt").write_text(render_pbtxt(config))
    yield folder
    stop_triton(tmp_path / "w")


def start(repository: Path, ports: dict[str, int], *more: str) -> subprocess.Popen[str]:
    flags = [f"--{name.replace('_', '-')}={port}" for name, port in ports.items()]
    command = [sys.executable, "-m", "trt_spec", "serve", str(repository), "-o", str(repository.parent / "w"), *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, *more],
        cwd=repository.parent,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Return what the command wrote to stderr up to the line with ``words``."""
    assert process.stderr is not None
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            break
    watchdog.cancel()
    assert words in said
    return said


def assert_nothing_left(server: RunningServer) -> None:
    assert list_processes(server.pid, server.shm_prefix) == []
    assert list(SHM_DIR.glob(f"{server.shm_prefix}*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_until_a_signal(repository: Path, free_ports: dict[str, int], number: signal.Signals) -> None:
    process = start(repository, free_ports)
    said = read_until(process, "Stop it with Ctrl-C.")
    server = load_server(repository.parent / "w")
    assert server is not None
    assert f"http://127.0.0.1:{free_ports['http_port']}\n" in said
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "Triton has stopped." in err
    assert_nothing_left(server)


def test_a_server_that_dies_ends_the_command(repository: Path, free_ports: dict[str, int]) -> None:
    process = start(repository, free_ports)
    read_until(process, "Stop it with Ctrl-C.")
    server = load_server(repository.parent / "w")
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Triton (process {server.pid}) has ended" in err
    assert "Traceback" not in err
    assert_nothing_left(server)


def test_b078_a_model_that_dies_ends_the_command(repository: Path, free_ports: dict[str, int]) -> None:
    """Triton stays ready without it, and answers no request for that model any more."""
    process = start(repository, free_ports)
    read_until(process, "Stop it with Ctrl-C.")
    server = load_server(repository.parent / "w")
    assert server is not None
    (stub,) = (part for part in find_parts(server) if "triton_python_backend_stub" in part.programs)
    os.kill(stub.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Process {stub.pid} (triton_python_backend_stub of " in err
    assert "idle/1/model.py) has ended, Triton itself has not" in err
    assert_nothing_left(server)


def test_two_commands_at_the_same_instant_on_the_same_ports(repository: Path, free_ports: dict[str, int]) -> None:
    """Both find the ports free; one of them becomes ready, the other never says so."""
    other = repository.parent / "other" / "repository"
    shutil.copytree(repository, other)
    commands = [start(folder, free_ports) for folder in (repository, other)]
    try:
        deadline = time.monotonic() + 60
        while all(command.poll() is None for command in commands) and time.monotonic() < deadline:
            time.sleep(0.1)
        ended = next(command for command in commands if command.poll() is not None)
        _, err = ended.communicate(timeout=60)
        assert ended.returncode in (1, 3)
        assert "Triton is ready" not in err
        assert "already in use" in err
        (runs,) = (command for command in commands if command is not ended)
        assert "Triton is ready" in read_until(runs, "Stop it with Ctrl-C.")
    finally:
        for command in commands:
            command.send_signal(signal.SIGINT)
            command.communicate(timeout=60)


def test_detached_until_stop(repository: Path, free_ports: dict[str, int]) -> None:
    process = start(repository, free_ports, "--detach")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    workspace = repository.parent / "w"
    server = load_server(workspace)
    assert server is not None
    assert read_start_ticks(server.pid) == server.start_ticks
    assert f"trtspec stop {workspace}" in err
    stop = [sys.executable, "-m", "trt_spec", "stop", str(workspace)]
    done = subprocess.run(stop, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"Stopped Triton (process {server.pid}" in done.stderr
    assert_nothing_left(server)
    done = subprocess.run(stop, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "No server of trtspec is running there." in done.stderr


def test_b077_a_port_in_use_is_refused_with_its_owner(repository: Path, free_ports: dict[str, int]) -> None:
    with socket.create_server(("127.0.0.1", free_ports["grpc_port"])):
        process = start(repository, free_ports)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    where = f"Port {free_ports['grpc_port']} on 127.0.0.1 (serve.grpc_port)"
    assert f"{where} is already in use by process {os.getpid()} (" in err
    assert not (repository.parent / "w" / "server.json").exists()
