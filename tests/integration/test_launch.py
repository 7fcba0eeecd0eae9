"""The real Triton of the wheel, on models written here: start, failure, stop, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.host.launch import LaunchOptions, check_repository, launch_triton, running_triton
from trt_spec.deploy.host.process_group import list_processes, wait_for_exit
from trt_spec.deploy.host.server import SERVER_FILE, SHM_DIR, RunningServer, end_server, load_server, stop_triton
from trt_spec.deploy.host.supervise import judge_server
from trt_spec.deploy.host.triton import find_triton, write_backends
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.pbtxt import InstanceGroup, ModelConfig, Tensor, render_pbtxt
from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed
from trt_spec.plan.launch import python_backend_threads
from trt_spec.spec.model import Serve

pytest.importorskip("tritonclient")

ECHO = """
class TritonPythonModel:
    def execute(self, requests):
        import triton_python_backend_utils as triton
        responses = []
        for request in requests:
            value = triton.get_input_tensor_by_name(request, "x").as_numpy()
            responses.append(triton.InferenceResponse([triton.Tensor("y", value)]))
        return responses
"""
# A backend may keep a request and answer it later from a thread of its own.
BACKEND = """
import json
import threading

from trtspec_serve.deep.answer import ANSWER


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.path = config["parameters"]["gpt_model_path"]["string_value"]

    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request.get_response_sender(),)).start()

    def answer(self, sender):
        import numpy
        import triton_python_backend_utils as triton

        value = numpy.array([[f"{ANSWER} {self.path}".encode()]], dtype=object)
        response = triton.InferenceResponse([triton.Tensor("y", value)])
        sender.send(response, flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise FileNotFoundError("no engine in /nowhere")

    def execute(self, requests):
        return []
"""
PATH_WITH_EVERYTHING = "/a b,c:d'e\"f\\g ${h} \ud55c"


def write_model(repository: Path, name: str, code: str | None, **settings: Any) -> None:
    config = ModelConfig(
        name=name,
        backend="python",
        inputs=(Tensor("x", "INT32", (1,)),),
        outputs=(Tensor("y", "INT32", (1,)),),
        instance_group=InstanceGroup(),
        **{"max_batch_size": 0} | settings,
    )
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(render_pbtxt(config))
    if code is not None:
        (repository / name / "1" / "model.py").write_text(code)


@pytest.fixture
def options(tmp_path: Path, free_ports: dict[str, int]) -> LaunchOptions:
    repository = tmp_path / "my repository"
    write_model(repository, "echo", ECHO)
    (repository / MARKER_FILE).write_text("{}")
    # Triton starts its Python processes through a shell: names like these must not reach it.
    workspace = tmp_path / "it's a $workspace; exit"
    return LaunchOptions(repository=repository, workspace=workspace, serve=Serve(**free_ports), timeout_s=60)


def post(server: RunningServer, model: str, inputs: list[dict[str, object]]) -> list[object]:
    body = json.dumps({"inputs": inputs}).encode()
    request = urllib.request.Request(f"{server.http_url}/v2/models/{model}/infer", data=body)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["outputs"][0]["data"]


def ask_echo(server: RunningServer) -> list[object]:
    return post(server, "echo", [{"name": "x", "datatype": "INT32", "shape": [1], "data": [42]}])


def find_workers(workspace: Path) -> set[int]:
    """The processes that work in a folder: a server's and its models'."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == workspace and (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


def assert_nothing_left(server: RunningServer) -> None:
    assert not server.is_alive()
    assert list_processes(server.pid, server.shm_prefix) == []
    assert list(SHM_DIR.glob(f"{server.shm_prefix}*")) == []


def test_start_answer_stop(options: LaunchOptions) -> None:
    server = launch_triton(options)
    try:
        assert ask_echo(server) == [42]
        assert load_server(options.workspace) == server
        assert list(SHM_DIR.glob(f"{server.shm_prefix}*")), "the prefix of shared memory files is not in effect"
        assert thread_pool_size(server) == python_backend_threads(1)
        with pytest.raises(EnvironmentMissing, match="already runs"):
            launch_triton(options)
        neighbour = LaunchOptions(
            repository=options.repository, workspace=options.workspace.parent / "other", serve=options.serve
        )
        with pytest.raises(
            EnvironmentMissing, match=rf"Port {options.serve.http_port} .*serve\.http_port.*trtspec stop"
        ):
            launch_triton(neighbour)
        assert ask_echo(server) == [42]
    finally:
        stopped = stop_triton(options.workspace)
    assert stopped == server
    assert_nothing_left(server)
    assert not (options.workspace / SERVER_FILE).exists()
    assert stop_triton(options.workspace) is None


def test_the_largest_batch_of_the_repository_decides_how_many_threads_wait_for_calls(options: LaunchOptions) -> None:
    write_model(options.repository, "many", ECHO, max_batch_size=5)
    with running_triton(options) as server:
        assert thread_pool_size(server) == python_backend_threads(5)


def test_what_the_orchestrators_let_in_counts_more_than_a_batch(options: LaunchOptions) -> None:
    write_model(options.repository, "many", ECHO, max_batch_size=5)
    write_model(options.repository, "bls", ECHO, parameters={"max_inflight_requests": "3"})
    with running_triton(options) as server:
        assert thread_pool_size(server) == python_backend_threads(3)


def thread_pool_size(server: RunningServer) -> int:
    argv = Path(f"/proc/{server.pid}/cmdline").read_bytes().decode().split("\0")
    (size,) = [word.rpartition("=")[2] for word in argv if "thread-pool-size=" in word]
    return int(size)


def test_backend_beside_its_package(options: LaunchOptions, tmp_path: Path) -> None:
    backends = write_backends(find_triton(), tmp_path / "backends")
    local = backends / "tensorrtllm"
    (local / "model.py").write_text(BACKEND)
    (local / "trtspec_serve" / "deep").mkdir()
    (local / "trtspec_serve" / "deep" / "answer.py").write_text('ANSWER = "engine at"\n')
    engine = ModelConfig(
        name="tensorrt_llm",
        backend="tensorrtllm",
        max_batch_size=4,
        inputs=(Tensor("x", "INT32", (1,)),),
        outputs=(Tensor("y", "STRING", (1,)),),
        parameters={"gpt_model_path": PATH_WITH_EVERYTHING},
        instance_group=InstanceGroup(),
    )
    folder = options.repository / engine.name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / ".gitkeep").touch()
    (folder / "config.pbtxt").write_text(render_pbtxt(engine), encoding="utf-8")
    with_backends = LaunchOptions(
        repository=options.repository, workspace=options.workspace, backends=backends, serve=options.serve
    )
    with running_triton(with_backends) as server:
        inputs = [{"name": "x", "datatype": "INT32", "shape": [1, 1], "data": [1]}]
        assert post(server, engine.name, inputs) == [f"engine at {PATH_WITH_EVERYTHING}"]
    assert_nothing_left(server)


def test_t004_a_broken_model_then_a_good_one_at_once(options: LaunchOptions) -> None:
    write_model(options.repository, "broken", BROKEN)
    seen: set[int] = set()
    with pytest.raises(StepFailed, match="model broken: FileNotFoundError: no engine in /nowhere") as failure:
        launch_triton(options, on_wait=lambda _: seen.update(find_workers(options.workspace)))
    assert "model.py(4): initialize" in str(failure.value)
    assert str(options.workspace / "triton.log") in str(failure.value)
    assert not (options.workspace / SERVER_FILE).exists()
    assert seen, "no process was there, so this test shows nothing"
    assert find_workers(options.workspace) == set()
    (options.repository / "broken" / "1" / "model.py").write_text(ECHO)
    with running_triton(options) as server:
        assert ask_echo(server) == [42]
    assert_nothing_left(server)


def test_t001_a_model_that_never_finishes_loading_is_named_at_the_deadline(options: LaunchOptions) -> None:
    write_model(options.repository, "slow", "import time\ntime.sleep(3600)\n")
    impatient = replace(options, timeout_s=2)
    started: list[RunningServer] = []

    def watch(_: float) -> None:
        server = load_server(options.workspace)
        assert server is not None
        started.append(server)

    with pytest.raises(StepFailed, match=r"not ready after 2 s.*still loading: slow"):
        launch_triton(impatient, on_wait=watch)
    assert_nothing_left(started[-1])


def test_t001_a_missing_model_py_is_found_before_the_start(options: LaunchOptions) -> None:
    write_model(options.repository, "hollow", None)
    with pytest.raises(SpecError, match=r"hollow/1/model\.py is missing"):
        launch_triton(options)
    assert not (options.workspace / "triton.log").exists()
    (options.repository / "hollow" / "1" / "model.py").write_text(ECHO)
    check_repository(options.repository)


def test_a_killed_server_is_reported_and_cleaned_up(options: LaunchOptions) -> None:
    server = launch_triton(options)
    assert judge_server(server) is None
    os.kill(server.pid, signal.SIGKILL)
    assert wait_for_exit(server.pid, server.start_ticks, 10)
    failure = judge_server(server)
    assert isinstance(failure, StepFailed)
    assert f"process {server.pid}" in str(failure)
    assert list(SHM_DIR.glob(f"{server.shm_prefix}*")), "nothing was left over, so this test shows nothing"
    with running_triton(options) as second:  # the stale record does not block, and its leftovers go
        assert ask_echo(second) == [42]
    assert_nothing_left(server)
    assert_nothing_left(second)


def test_interrupted_start_leaves_nothing(options: LaunchOptions) -> None:
    started: list[RunningServer] = []

    def interrupt(_: float) -> None:
        server = load_server(options.workspace)
        assert server is not None
        started.append(server)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch_triton(options, on_wait=interrupt)
    assert_nothing_left(started[0])
    assert load_server(options.workspace) is None


def test_a_recycled_pid_is_never_ended(options: LaunchOptions) -> None:
    """The record names a living process (this one) that started at another time."""
    record = {
        "pid": os.getpid(),
        "start_ticks": 1,
        "host": "127.0.0.1",
        **{f"{name}_port": port for name, port in options.serve.ports.items()},
        "repository": "r",
        "log": "l",
        "shm_prefix": "trtspec_00000000_",
    }
    options.workspace.mkdir()
    (options.workspace / SERVER_FILE).write_text(json.dumps(record))
    server = load_server(options.workspace)
    assert server is not None
    end_server(server)
    assert stop_triton(options.workspace) is None
