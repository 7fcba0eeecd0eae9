from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trt_spec.deploy.host.container import ContainerRun, container_argv, judge_runtime, remove_container
from trt_spec.deploy.host.server import SERVER_FILE, RunningServer, stop_triton, write_server
from trt_spec.errors import EnvironmentMissing


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def make_run(**changes: object) -> ContainerRun:
    values = {
        "image": "i:1",
        "gpus": (0, 3),
        "processes": 6,
        "address": "10.0.0.5",
        "ports": (8000,),
        "mounts": ("/w",),
    }
    return ContainerRun(
        **{**values, "environment": {"A": "b c"}, "name": "trtspec-0123abcd", "workdir": "/w", **changes}
    )


def test_one_container_in_full() -> None:
    assert container_argv(make_run()) == (
        *("docker", "run", "--rm", "--init", "--name", "trtspec-0123abcd", "--gpus", '"device=0,3"'),
        *("--shm-size", "6g", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--publish", "10.0.0.5:8000:8000", "--mount", "type=bind,source=/w,target=/w,readonly"),
        *("--workdir", "/w", "--env", "A=b c", "i:1"),
    )
    assert "2g" in container_argv(make_run(processes=1))


@pytest.mark.parametrize("path", ["/m/a b", "/m/a:b,c", '/m/q"uote', "/m/한"])
def test_any_path_can_be_mounted(path: str) -> None:
    argv = container_argv(make_run(mounts=(path,)))
    (fields,) = csv.reader([argv[argv.index("--mount") + 1]])  # as docker reads it
    assert fields == ["type=bind", f"source={path}", f"target={path}", "readonly"]


def test_what_keeps_docker_from_starting_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, '[ "$1" = info ]')
    assert judge_runtime() is None
    install(tmp_path, monkeypatch, "exit 1")
    assert judge_runtime() == "docker is there but reaches no daemon (`docker info` fails)"
    monkeypatch.setenv("PATH", "/nowhere")
    assert judge_runtime() == "there is no docker"


def test_a_container_that_is_gone_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, 'echo "Error response from daemon: No such container: x" >&2; exit 1')
    remove_container("trtspec-0123abcd")


def test_a_container_that_stays_keeps_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, 'echo "permission denied" >&2; exit 1')
    gone = RunningServer(99999999, 1, "127.0.0.1", 1, 2, 3, "r", "l", "trtspec_0123abcd_", container="trtspec-0123abcd")
    write_server(tmp_path, gone)
    with pytest.raises(EnvironmentMissing, match=r"permission denied\. Remove it with `docker rm --force trtspec-0123"):
        stop_triton(tmp_path)
    assert (tmp_path / SERVER_FILE).exists()
    install(tmp_path, monkeypatch, "exit 0")
    assert stop_triton(tmp_path) is None
    assert not (tmp_path / SERVER_FILE).exists()
