"""Each judgement on readings of machines that have one fault."""

import json
from dataclasses import replace

import pytest

from trt_spec.build.doctor.judge import judge_machine, render_json
from trt_spec.build.doctor.machine import EmbeddedTriton, NvidiaReading, Runtime
from trt_spec.plan.hardware import GIB, MIB
from trt_spec.plan.toolchain import load_profile

TRITON = EmbeddedTriton("0.7.0")


def judge(machine, triton=TRITON, version="1.2.1"):
    return judge_machine(machine, triton, load_profile(version))


def find(diagnosis, name):
    (check,) = (check for check in diagnosis.checks if check.name == name)
    return check


def names(checks):
    return [check.name for check in checks]


def with_gpu(machine, **fields):
    gpus = tuple(replace(gpu, **fields) for gpu in machine.nvidia.gpus)
    return replace(machine, nvidia=replace(machine.nvidia, gpus=gpus))


def test_a_complete_gpu_host_is_all_green(gpu_host):
    diagnosis = judge(gpu_host)
    assert {check.colour for check in diagnosis.checks} == {"green"}
    assert all(diagnosis.is_usable(backend) for backend in ("onnx", "engine", "llmapi"))
    assert find(diagnosis, "GPUs").found == "4 x NVIDIA H200 (140 GiB, compute capability 9.0)"
    assert "NV18" in find(diagnosis, "GPU links").found


def test_a_laptop_rehearses_and_says_what_engines_need(laptop):
    diagnosis = judge(laptop)
    assert diagnosis.is_usable("onnx")
    for backend in ("engine", "llmapi"):
        assert names(diagnosis.find_obstacles(backend)) == ["driver", "GPUs", "container runtime"]
    assert all(check.remedy for check in diagnosis.checks if check.colour != "green")


@pytest.mark.parametrize(
    ("driver", "version", "colour", "says"),
    [
        ("580.95.05", "1.2.1", "green", "580 or newer"),
        ("580", "1.2.1", "green", "580 or newer"),
        ("575.57.08", "1.2.1", "red", "tensorrt_llm: '0.18.2'"),
        ("575.57.08", "0.18.2", "green", "525 or newer"),
        ("520.61.05", "0.17.0", "red", "Update the driver to 570.86.10."),
    ],
)
def test_the_driver_against_the_toolchain(gpu_host, driver, version, colour, says):
    diagnosis = judge(replace(gpu_host, nvidia=replace(gpu_host.nvidia, driver=driver)), version=version)
    check = find(diagnosis, "driver")
    assert check.colour == colour
    assert says in f"{check.meaning} {check.remedy}"
    assert diagnosis.is_usable("engine") == (colour == "green")


def test_a_driver_whose_tool_fails_is_not_called_absent(gpu_host):
    nvidia = NvidiaReading(driver="590.44.01", fault="Driver/library version mismatch")
    diagnosis = judge(replace(gpu_host, nvidia=nvidia))
    assert find(diagnosis, "driver").colour == "green"
    check = find(diagnosis, "GPUs")
    assert check.colour == "red"
    assert "mismatch" in check.found and "Restart" in check.remedy


@pytest.mark.parametrize(
    ("fields", "colour", "says"),
    [
        ({"compute_capability": "7.0"}, "red", "8.0"),
        ({"compute_capability": "8.0"}, "amber", "FP8"),
        ({"compute_capability": "8.9"}, "green", "FP8"),
        ({"compute_capability": "12.0"}, "green", "FP8"),
        ({"compute_capability": None}, "amber", "not known"),
        ({"memory_bytes": None}, "green", "FP8"),
    ],
)
def test_what_the_gpus_can(gpu_host, fields, colour, says):
    check = find(judge(with_gpu(gpu_host, **fields)), "GPUs")
    assert (check.colour, says in check.meaning) == (colour, True)


def test_different_gpus_are_named(gpu_host):
    first, *rest = gpu_host.nvidia.gpus
    gpus = (replace(first, name="NVIDIA L40S", compute_capability="8.9"), *rest)
    check = find(judge(replace(gpu_host, nvidia=replace(gpu_host.nvidia, gpus=gpus))), "GPUs")
    assert check.colour == "amber"
    assert check.found.startswith("1 x NVIDIA L40S") and "3 x NVIDIA H200" in check.found


def test_links_that_are_slow_or_unknown(gpu_host):
    nvidia = gpu_host.nvidia
    slow = judge(replace(gpu_host, nvidia=replace(nvidia, links={**nvidia.links, (1, 3): "SYS"})))
    assert find(slow, "GPU links").colour == "amber"
    assert "GPUs 1 and 3 are linked by SYS" in find(slow, "GPU links").found
    assert slow.is_usable("engine")
    unknown = judge(replace(gpu_host, nvidia=replace(nvidia, links=None)))
    assert find(unknown, "GPU links").found == "topology not readable"
    blocked = judge(replace(gpu_host, nvidia=replace(nvidia, peers={**nvidia.peers, (0, 2): "CNS"})))
    assert "GPUs 0 and 2" in find(blocked, "peer access").found
    alone = judge(replace(gpu_host, nvidia=replace(nvidia, gpus=nvidia.gpus[:1], links=None)))
    assert "GPU links" not in names(alone.checks)


def test_containers_without_gpus(gpu_host):
    blind = replace(gpu_host, runtimes=(Runtime("docker", "28.2.2"),))
    assert find(judge(blind), "NVIDIA container toolkit").colour == "amber"
    bare = judge(replace(blind, toolkit=None))
    assert names(bare.find_obstacles("engine")) == ["NVIDIA container toolkit"]
    podman = (Runtime("docker", fault="docker is not on PATH"), Runtime("podman", "5.4.0", sees_gpus=True))
    assert find(judge(replace(gpu_host, runtimes=podman)), "container runtime").found == "podman 5.4.0"


def test_no_container_is_needed_where_the_exact_version_is_installed(gpu_host):
    bare = replace(gpu_host, runtimes=(Runtime("docker", fault="docker is not on PATH"),), toolkit=None)
    native = judge(replace(bare, tensorrt_llm="1.2.1", has_builder=True))
    assert native.is_usable("engine") and native.is_usable("llmapi")
    assert find(native, "container runtime").colour == "amber"
    other = judge(replace(bare, tensorrt_llm="1.1.0"))
    assert names(other.find_obstacles("engine")) == ["container runtime"]
    assert other.is_usable("llmapi")
    assert not judge(replace(bare, tensorrt_llm="1.2.1")).is_usable("engine")  # without trtllm-build
    old = judge(replace(bare, tensorrt_llm="0.18.2"))
    assert not old.is_usable("llmapi")


@pytest.mark.parametrize(
    ("memory_bytes", "onnx", "engine"),
    [(2000 * GIB, "green", "green"), (100 * GIB, "green", "amber"), (3 * GIB, "amber", "red")],
)
def test_memory(gpu_host, memory_bytes, onnx, engine):
    diagnosis = judge(replace(gpu_host, memory_bytes=memory_bytes))
    assert find(diagnosis, "memory").colour == onnx
    assert find(diagnosis, "memory for engines").colour == engine
    assert find(judge(replace(gpu_host, memory_bytes=None)), "memory").colour == "amber"


def test_shared_memory_for_the_ranks_of_a_native_run(gpu_host):
    def diagnose(free_bytes, **fields):
        shared = replace(gpu_host.shared_memory, free_bytes=free_bytes)
        return judge(replace(gpu_host, shared_memory=shared, **fields))

    small = find(diagnose(3 * GIB, tensorrt_llm="1.2.1", has_builder=True), "/dev/shm for engines")
    assert small.colour == "amber"
    assert "--shm-size 4g" in small.remedy
    assert "/dev/shm for engines" not in names(diagnose(4 * GIB, tensorrt_llm="1.2.1", has_builder=True).checks)
    assert "/dev/shm for engines" not in names(diagnose(3 * GIB).checks)  # the container gets its own
    assert find(diagnose(16 * MIB), "/dev/shm").colour == "amber"
    assert find(diagnose(None), "/dev/shm").colour == "red"


@pytest.mark.parametrize(
    ("free_bytes", "colour", "concerns_onnx"),
    [(8000 * GIB, "green", True), (1000 * GIB, "amber", False), (1 * GIB, "amber", True), (1 * MIB, "red", True)],
)
def test_disk(gpu_host, free_bytes, colour, concerns_onnx):
    workspace, cache = gpu_host.places
    check = find(judge(replace(gpu_host, places=(replace(workspace, free_bytes=free_bytes), cache))), "workspace disk")
    assert (check.colour, "onnx" in check.concerns) == (colour, concerns_onnx)


def test_a_folder_that_cannot_be_written(gpu_host):
    workspace, cache = gpu_host.places
    diagnosis = judge(replace(gpu_host, places=(workspace, replace(cache, is_writable=False))))
    check = find(diagnosis, "cache disk")
    assert check.colour == "red" and "TRTSPEC_CACHE" in check.remedy
    assert not diagnosis.is_usable("onnx")


def test_missing_packages_are_named(gpu_host):
    missing = {**gpu_host.missing, "local": ("onnxruntime>=1.24 (found 1.19)",), "plot": ("matplotlib>=3.8",)}
    diagnosis = judge(replace(gpu_host, missing=missing))
    check = find(diagnosis, "extra local")
    assert check.colour == "red" and "onnxruntime>=1.24 (found 1.19)" in check.found
    assert check.remedy == "Run `pip install 'trtspec[local]'`."
    assert find(diagnosis, "extra plot").colour == "amber"
    assert diagnosis.is_usable("engine") and not diagnosis.is_usable("onnx")
    assert find(judge(replace(gpu_host, missing=None)), "extras").colour == "amber"


def test_no_login_and_no_embedded_triton(gpu_host):
    diagnosis = judge(replace(gpu_host, hub_login=None), EmbeddedTriton(fault="It is not there.", remedy="Install it."))
    assert find(diagnosis, "hub login").colour == "amber"
    (obstacle,) = diagnosis.find_obstacles("onnx")
    assert (obstacle.name, obstacle.found, obstacle.remedy) == ("embedded Triton", "It is not there.", "Install it.")


@pytest.mark.parametrize(("system", "architecture"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_other_platforms_only_plan(gpu_host, system, architecture):
    diagnosis = judge(replace(gpu_host, system=system, architecture=architecture))
    assert not any(diagnosis.is_usable(backend) for backend in ("onnx", "engine", "llmapi"))
    assert "`plan` work here" in find(diagnosis, "platform").meaning


def test_the_document_says_the_same(laptop, gpu_host):
    document = json.loads(render_json(judge(laptop), laptop))
    assert document["backends"]["onnx"] == {"works": True, "obstacles": []}
    assert document["backends"]["engine"]["obstacles"] == ["driver", "GPUs", "container runtime"]
    assert {check["colour"] for check in document["checks"]} == {"green", "amber", "red"}
    gpus = json.loads(render_json(judge(gpu_host), gpu_host))
    assert gpus["gpus"][3] == {
        "index": 3,
        "name": "NVIDIA H200",
        "memory_bytes": 143771 * MIB,
        "compute_capability": "9.0",
    }
    assert gpus["links"]["0-3"] == "NV18"
