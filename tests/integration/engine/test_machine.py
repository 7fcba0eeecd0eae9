"""What a build asks of the machine before it starts, and where it finds its tools."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from trt_spec.build.engine import host, preflight, toolchain
from trt_spec.build.engine.container import Place, container_argv
from trt_spec.errors import EnvironmentMissing
from trt_spec.plan.container_limits import shared_memory_bytes
from trt_spec.plan.hardware import GIB
from trt_spec.plan.toolchain import load_profile
from trt_spec.plan.workspace import Workspace

A100 = {"name": "NVIDIA A100-SXM4-80GB", "compute_cap": "8.0", "memory.total": "81920"}


def refused(machine, result, words: str) -> None:
    assert result.exit_code == 3, result.output
    assert words in result.stderr
    assert not list(machine.workspace.root.glob("*/*"))


def test_without_any_toolchain_all_ways_are_named(machine):
    result = machine.build(machine.write_spec())
    refused(machine, result, "no tensorrt_llm is installed, and there is no docker or podman")
    assert "26.07-trtllm-python-py3" in result.stderr and "--print-script" in result.stderr


def test_a_client_without_a_daemon_counts_as_absent(container):
    container.set(docker_down="1")
    refused(container, container.build(container.write_spec()), "docker is there but reaches no daemon")


def test_another_installed_version_is_not_used(machine):
    machine.install_tensorrt_llm("0.18.2")
    refused(machine, machine.build(machine.write_spec()), "version 0.18.2 is installed")
    machine.install_programs("docker")
    assert machine.build(machine.write_spec()).exit_code == 0
    assert machine.record("target")["toolchain"]["runtime"] == "docker"


def test_a_package_without_its_program_is_not_used(machine):
    machine.install_tensorrt_llm("1.2.1")
    (machine.folder / "bin" / "trtllm-build").unlink()
    refused(machine, machine.build(machine.write_spec()), "without the program trtllm-build")


def test_quantising_natively_needs_nvidias_script(native):
    fp8 = {"quantization": "fp8", "kv_cache_dtype": "fp8"}
    spec = native.write_spec(target=fp8, draft=fp8)
    refused(native, native.build(spec), "installed without /app/examples/quantization/quantize.py")


def test_no_gpu(native):
    native.set(gpus="none")
    refused(native, native.build(native.write_spec()), "nvidia-smi sees no GPU")
    native.install_programs("docker")
    refused(native, native.build(native.write_spec()), "nvidia-smi lists no GPU")


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([A100] * 4, "GPU 0 is NVIDIA A100-SXM4-80GB of compute capability 8.0, the spec's H200 has 9.0"),
        ([{}, {}, A100], "GPU 2 is NVIDIA A100-SXM4-80GB"),
        ([{}, {}], "The plan uses GPU 2, nvidia-smi lists 0, 1"),
        ([{"memory.total": "17920"}] * 4, "GPU 0 (NVIDIA H200) has 18 GiB, the plan counts on 140 GiB"),
        ([{"driver_version": "570.86.10"}] * 4, "The NVIDIA driver is 570.86.10; CUDA 13.1.0.036"),
    ],
)
def test_gpus_that_are_not_those_of_the_spec(native, gpus, words):
    native.set(gpus=gpus)
    refused(native, native.build(native.write_spec()), words)


def test_a_generic_gpu_takes_the_architecture_that_is_there(native):
    native.set(gpus=[A100] * 4)
    spec = native.write_spec(hardware={"gpu": "generic", "gpus": 4})
    assert native.build(spec).exit_code == 0
    assert native.record("target")["tools"]["compute_capability"] == "8.0"


def test_another_architecture_makes_the_engines_again(native):
    spec = native.write_spec(hardware={"gpu": "generic", "gpus": 4})
    native.build(spec)
    native.forget_calls()
    native.set(gpus=[A100] * 4)
    result = native.build(spec)
    assert "Built engine-draft, engine-target." in result.stderr


def test_an_older_driver_serves_an_older_version(machine):
    machine.install_tensorrt_llm("0.18.2")
    machine.set(gpus=[{"driver_version": "535.183.01"}] * 4)
    assert machine.build(machine.write_spec("0.18.2")).exit_code == 0


def test_a_container_limit_counts_before_the_host(tmp_path: Path, monkeypatch):
    (tmp_path / "own").write_text("0::/job/step\n")
    group = tmp_path / "groups" / "job"
    (group / "step").mkdir(parents=True)
    (group / "step" / "memory.max").write_text("max\n")
    (group / "memory.max").write_text(f"{4 * GIB}\n")
    (group / "memory.stat").write_text(f"anon {GIB}\nfile {3 * GIB}\n")
    monkeypatch.setattr(host, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(host, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(host, "_read_mem_available", lambda: 100 * GIB)
    assert host.read_available_memory_bytes() == 3 * GIB


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path):
    found = host.read_free_disk_bytes(tmp_path / "not" / "there")
    assert found == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)


@pytest.mark.parametrize("answer", ["garbage", "0, NVIDIA H200, 9.0, [N/A], 590"])
def test_what_nvidia_smi_should_not_say(machine, answer):
    (machine.folder / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\necho '{answer}'\n")
    assert host.read_gpus() == ()


def place(tmp_path: Path, ranks: int = 2) -> Place:
    gpus = tuple(range(ranks))
    return Place(tmp_path, (tmp_path / "model",), gpus, ranks, tmp_path / "engines" / ".tmp", "trtspec-x")


def test_podman_takes_gpus_by_the_device_interface_and_keeps_the_user(tmp_path: Path):
    argv = container_argv("podman", "image", place(tmp_path), ())
    assert argv[0] == "podman" and argv[-1] == "image"
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--device"] == [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=1",
    ]
    assert "--gpus" not in argv
    assert argv[argv.index("--userns") + 1] == "keep-id"


def test_podman_is_taken_where_docker_does_not_answer(machine, monkeypatch):
    asked = []

    def run(argv, **_settings):
        asked.append(argv[0])
        if argv[0] == "docker":
            raise toolchain.subprocess.CalledProcessError(1, argv)

    monkeypatch.setattr(toolchain.subprocess, "run", run)
    monkeypatch.setattr(
        toolchain.shutil, "which", lambda name: f"/bin/{name}" if name in ("docker", "podman") else None
    )
    assert toolchain.resolve_toolchain(load_profile("1.2.1"), (), False).runtime == "podman"
    assert asked == ["docker", "podman"]


def test_a_colon_cannot_be_mounted(container):
    container.workspace = Workspace(container.folder / "a:b")
    refused(container, container.build(container.write_spec()), "has a colon in its name")


def test_programs_beside_this_python_are_found(machine, tmp_path, monkeypatch):
    machine.install_tensorrt_llm("1.2.1")
    own = tmp_path / "venv"
    own.mkdir()
    (machine.folder / "bin" / "trtllm-build").rename(own / "trtllm-build")
    assert not toolchain.is_native(load_profile("1.2.1"), False)
    monkeypatch.setattr(toolchain.sys, "executable", str(own / "python"))
    assert toolchain.is_native(load_profile("1.2.1"), False)


def test_the_token_goes_by_name(tmp_path: Path):
    argv = container_argv("docker", "image", place(tmp_path), ("HF_TOKEN",))
    assert argv[argv.index("HF_TOKEN") - 1] == "--env"


@pytest.mark.parametrize(("ranks", "gib"), [(1, 2), (2, 2), (4, 4), (8, 8)])
def test_shared_memory_grows_with_the_ranks(ranks, gib):
    assert shared_memory_bytes(ranks) == gib * GIB


def test_memory_of_the_hungriest_step(monkeypatch):
    monkeypatch.setattr(preflight, "read_available_memory_bytes", lambda: 64 * GIB)
    cost = SimpleNamespace(
        id="engine-target",
        role="target",
        kind="trtllm_build",
        host_memory_bytes=140 * GIB,
        workers=2,
        assumption="two copies",
    )
    with pytest.raises(EnvironmentMissing, match=r"engine-target needs about 140 GiB .* 64 GiB are available"):
        preflight.check_memory([cost])
    preflight.check_memory([])


def test_unreadable_driver_versions_are_not_judged():
    preflight.check_driver("unknown", load_profile("1.2.1"))
    with pytest.raises(EnvironmentMissing, match="needs 580 or newer"):
        preflight.check_driver("579.1", load_profile("1.2.1"))
