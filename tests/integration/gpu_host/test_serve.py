"""`trtspec serve` of an engine pair on a GPU host of stand-ins: natively, in a container, and when parts of it die."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trt_spec.deploy.host.process_group import Process, list_processes
from trt_spec.deploy.host.server import RunningServer

READY = "Stop it with Ctrl-C."


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            break
    watchdog.cancel()
    assert words in said
    return said


def processes(server: RunningServer) -> dict[str, list[Process]]:
    found: dict[str, list[Process]] = {}
    for process in list_processes(server.pid, server.shm_prefix):
        found.setdefault(process.programs[-1], []).append(process)
    return found


def assert_nothing_left(server: RunningServer) -> None:
    assert list_processes(server.pid, server.shm_prefix) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_natively_until_a_signal(host, number) -> None:
    host.install_triton()
    host.write()
    process = host.serve()
    said = read_until(process, READY)
    assert f"http://127.0.0.1:{host.ports['http_port']}" in said
    server = host.server()
    assert sorted(processes(server)) == ["mpirun", "triton_python_backend_stub", "tritonserver", "trtllmExecutorWorker"]
    (argv,) = host.calls("tritonserver")
    assert f"--model-repository={host.workspace.repository}" in argv
    assert f"--http-port={host.ports['http_port']}" in argv
    assert "--cuda-memory-pool-byte-size=7:0" in argv  # every GPU that the process sees
    assert f"--backend-config=python,shm-region-prefix-name={server.shm_prefix}0_" in argv
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Triton has stopped." in err
    assert_nothing_left(server)


def test_detached_until_stop(host) -> None:
    host.install_triton()
    host.write(speculation={"accept": "fast_logits"})
    _, err = host.serve("--detach").communicate(timeout=60)
    assert "Stop it with: trtspec stop" in err
    server = host.server()
    assert len(processes(server)["tritonserver"]) == 1 + 2 + 1  # orchestrator, target, draft
    stop = [sys.executable, "-m", "trt_spec", "stop", str(host.workspace.root)]
    done = subprocess.run(stop, capture_output=True, text=True, check=True)
    assert f"Stopped Triton (process {server.pid}" in done.stderr
    assert_nothing_left(server)


@pytest.mark.parametrize("part", ["tritonserver", "trtllmExecutorWorker", "triton_python_backend_stub"])
def test_b078_a_dead_process_ends_the_whole_server(host, part) -> None:
    """TensorRT-LLM issue 18663: the front process stays and answers 503 for ever. A dead stub even leaves it ready."""
    host.install_triton()
    host.write()
    process = host.serve()
    read_until(process, READY)
    server = host.server()
    victim = processes(server)[part][0]
    os.kill(victim.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    if part == "triton_python_backend_stub":
        assert f"Process {victim.pid} ({part} of " in err
        assert "/1/model.py) has ended, Triton itself has not" in err
    assert "Traceback" not in err
    assert_nothing_left(server)


def test_b078_readiness_lost_for_too_long_ends_the_server(host) -> None:
    host.install_triton()
    host.write()
    host.set(unready=str(host.folder / "unready"))
    code = (
        "import sys; from pathlib import Path; from trt_spec.deploy.host.foreground import run_until_stopped; "
        "from trt_spec.deploy.workspace import resolve_launch; "
        f"run_until_stopped(resolve_launch(Path({str(host.spec_file)!r}), Path({str(host.workspace.root)!r}), {{}}), "
        f"lambda _: Path({str(host.folder / 'unready')!r}).touch(), None, ready_lost_s=1.0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "has not been ready for 1 s" in done.stderr


def test_in_a_container_until_a_signal(host) -> None:
    host.install("docker", "tritonserver", "triton_python_backend_stub", "trtllmExecutorWorker", "mpirun")
    host.write()  # a tritonserver without its tensorrtllm backend is no GPU host's
    process = host.serve()
    read_until(process, READY)
    server = host.server()
    (run,) = (argv for argv in host.calls("docker") if argv[0] == "run")
    options = dict(itertools.pairwise(run))
    assert options["--name"] == server.container
    assert options["--gpus"] == '"device=0,1,2"'
    assert options["--publish"].startswith("127.0.0.1:")
    assert options["--mount"] == f"type=bind,source={host.workspace.root},target={host.workspace.root},readonly"
    assert "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3" in run
    assert "--http-address=0.0.0.0" in run
    assert (host.folder / "containers" / f"{server.container}.json").exists()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert list((host.folder / "containers").iterdir()) == []
    assert_nothing_left(server)


def test_stop_removes_a_container_whose_client_was_killed(host) -> None:
    host.install("docker", "tritonserver", "triton_python_backend_stub", "trtllmExecutorWorker", "mpirun")
    host.write()
    host.serve("--detach").communicate(timeout=60)
    server = host.server()
    os.kill(server.pid, signal.SIGKILL)
    record = host.folder / "containers" / f"{server.container}.json"
    assert record.exists()
    subprocess.run([sys.executable, "-m", "trt_spec", "stop", str(host.workspace.root)], check=True)
    assert not record.exists()
    assert_nothing_left(server)
    assert not (host.workspace.root / "server.json").exists()


def test_paths_with_everything(host) -> None:
    """Triton hands the repository's path to a shell, docker its mounts to a CSV reader."""
    host.install("docker", "tritonserver", "triton_python_backend_stub", "trtllmExecutorWorker", "mpirun")
    place = type(host.workspace)(host.folder / "it's a, work:space; $x")
    place.root.mkdir()
    host.workspace = place
    host.write()
    _, err = host.serve("--detach").communicate(timeout=60)
    assert "Triton is ready" in err
    (run,) = (argv for argv in host.calls("docker") if argv[0] == "run")
    assert "--model-repository=repository" in run


def test_b081_a_failed_load_tells_its_cause_and_leaves_nothing(host, tmp_path: Path) -> None:
    host.install_triton()
    host.write()
    log = tmp_path / "log"
    log.write_text(
        "[TensorRT-LLM][ERROR] 6: The engine plan file is not compatible with this version of TensorRT, expecting "
        "library version 9.2.0.5 got 9.3.0.1, please rebuild.\n"
    )
    host.set(fault="load", log=str(log))
    process = host.serve()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "[VERSION_MISMATCH]" in err
    assert "Serve it in the container of the version that built it" in err
    assert not (host.workspace.root / "server.json").exists()
    host.set(fault="")
    process = host.serve("--detach")  # T004: the second start is not disturbed by the first
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_t001_the_deadline_names_the_model_that_never_finished(host) -> None:
    host.install_triton()
    host.write()
    host.set(fault="slow")
    process = host.serve("--timeout", "2")
    started = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "not ready after 2 s" in err
    assert "still loading: tensorrt_llm" in err
    assert time.monotonic() - started < 30


def test_two_servers_on_the_same_ports_at_the_same_instant(host) -> None:
    """Both see free ports, and a ready server on them; only one of them is its own."""
    host.install_triton()
    host.set(delay_s=3)
    host.write()
    first = host.serve()
    place = type(host.workspace)(host.folder / "other")
    place.root.mkdir()
    one, host.workspace = host.workspace, place
    host.write()
    second = host.serve()
    host.workspace = one
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and first.poll() is None and second.poll() is None:
        time.sleep(0.05)
    ended, runs = (first, second) if first.poll() is not None else (second, first)
    _, err = ended.communicate(timeout=10)
    assert ended.returncode == 1  # not 3: both had found the ports free
    assert "Triton is ready" not in err
    assert "Address already in use" in err
    assert runs.poll() is None
    runs.send_signal(signal.SIGINT)
    _, err = runs.communicate(timeout=60)
    assert runs.returncode == 0
    assert "Triton is ready" in err
