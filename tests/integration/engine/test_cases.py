"""Known failures that the build answers, by id (docs/reference/cases.md)."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from trt_spec.build.engine import host, preflight
from trt_spec.build.engine.diagnosis import diagnose
from trt_spec.plan.engine_record import SeenGpu, judge_files, judge_gpus, judge_version
from trt_spec.plan.hardware import GIB

Usage = namedtuple("Usage", "total used free")


def test_b011_an_engine_of_another_version_names_the_fitting_container(native):
    """tensorrtllm_backend issue 531: plan files load with the TensorRT that wrote them only."""
    (finding,) = judge_version("0.18.2", "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3", "target")
    assert finding.severity == "refuse"
    assert "built with TensorRT-LLM 0.18.2, container 26.07 ships 1.2.1" in finding.message
    assert "use 25.04" in finding.remedy
    assert judge_version("1.2.1", "26.04-trtllm-python-py3", "target") == ()
    assert judge_version("1.2.1", "registry.local/mine:latest", "target") == ()
    native.set(fault="target:other-version")
    result = native.build(native.write_spec())
    assert result.exit_code == 1
    assert 'the engine says version "0.10.0", planned "1.2.1"' in result.stderr
    native.unset("fault")
    native.build(native.write_spec())
    built = native.record("target")["toolchain"]
    assert (built["tensorrt_llm"], built["tensorrt"]) == ("1.2.1", "10.14.1.48")


def test_b013_every_gpu_of_an_engine_must_have_its_architecture(native):
    """TensorRT-LLM issue 222: built on an A100, loaded on an A10."""
    seen = [SeenGpu(index, name, capability, 40 * GIB, "590.44.01") for index, name, capability in SEEN]
    (finding,) = judge_gpus("8.0", [1], seen, "draft")
    assert finding.message == "tensorrt_llm_draft engine is sm80, GPU 1 (NVIDIA A10) is sm86."
    assert [found.message for found in judge_gpus("8.0", [0, 1, 7], seen, "target")] == [
        "tensorrt_llm engine is sm80, GPU 1 (NVIDIA A10) is sm86.",
        "tensorrt_llm engine is sm80, GPU 7 is not there.",
    ]
    assert judge_gpus("8.0", [0], seen, "target") == ()
    native.build(native.write_spec())
    assert {gpu["compute_capability"] for gpu in native.record("draft")["gpus"]} == {"9.0"}


SEEN = ((0, "NVIDIA A100", "8.0"), (1, "NVIDIA A10", "8.6"))


def test_b014_a_truncated_rank_is_told_from_a_wrong_version(native):
    """TensorRT-LLM issue 1038: both fail to deserialise."""
    spec = native.write_spec()
    native.build(spec)
    record, folder = native.record("target"), native.workspace.engine("target")
    rank = folder / "rank1.engine"
    size = rank.stat().st_size
    rank.write_bytes(rank.read_bytes()[:-1])
    (finding,) = judge_files(record, {path.name: path.stat().st_size for path in folder.iterdir()}, "target")
    assert finding.message == f"target: rank1.engine is truncated ({size - 1} bytes, manifest {size} bytes)."
    rank.unlink()
    (finding,) = judge_files(record, {path.name: path.stat().st_size for path in folder.iterdir()}, "target")
    assert f"rank1.engine is missing (manifest {size} bytes)" in finding.message
    assert len(record["files"]["rank0.engine"]["sha256"]) == 64
    assert "Built engine-target." in native.build(spec).stderr


def test_b015_a_failed_build_leaves_no_engine_and_the_next_goes_on(native):
    """triton_cli pull request 55: rank0.engine written, then exit code 1."""
    native.set(fault="target:crash")
    result = native.build(native.write_spec())
    assert result.exit_code == 1
    assert not native.workspace.engine("target").exists()
    assert native.hidden() == []
    assert not native.workspace.manifest.exists()
    native.unset("fault")
    result = native.build(native.write_spec())
    assert result.exit_code == 0
    assert "convert" not in result.stderr  # those stages were finished


def test_b017_a_disk_too_small_is_seen_before_anything_starts(native, monkeypatch):
    """TensorRT-LLM pull request 4375: no space left while serialising."""
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _place: Usage(10, 10, 100_000))
    result = native.build(native.write_spec())
    assert result.exit_code == 3
    assert "GB are free" in result.stderr and "--discard-checkpoint" in result.stderr
    assert native.calls("trtllm-build") == []
    monkeypatch.undo()


def test_b017_a_disk_that_fills_up_leaves_no_partial(native):
    native.set(fault="draft:disk-full")
    result = native.build(native.write_spec())
    assert result.exit_code == 1
    assert "The disk is full. Free space in the workspace" in result.stderr
    assert native.hidden() == []
    assert not native.workspace.engine("draft").exists()


@pytest.mark.parametrize("code", [-9, 137])
def test_b018_a_killed_step_speaks_of_host_memory(code):
    """TensorRT-LLM issue 102: the kernel's killer leaves no message."""
    found = diagnose(code, "Loading weights\n", needed_bytes=140 * GIB, available_bytes=64 * GIB)
    assert "lack of memory: the step needs about 150.3 GB, 68.7 GB were available" in found.sentence


def test_b018_too_little_host_memory_is_seen_before_anything_starts(native, monkeypatch):
    """What each step really needs counts, not a multiple of the model."""
    monkeypatch.setattr(preflight, "read_available_memory_bytes", lambda: 2 * GIB)
    result = native.build(native.write_spec(build_flags={"target": {"workers": 2}}))
    assert result.exit_code == 3
    assert "of host memory" in result.stderr and "2 GiB are available" in result.stderr
    assert "workers: 1" in result.stderr
    assert native.calls("trtllm-build") == []


def test_b027_a_small_shared_memory_is_refused(native, monkeypatch):
    """TensorRT-LLM issue 408: docker's default of 64 MiB."""
    monkeypatch.setattr(preflight, "read_shared_memory_bytes", lambda: 64 * 2**20)
    result = native.build(native.write_spec())
    assert result.exit_code == 3
    assert "/dev/shm holds 0.06 GiB, 2 ranks need 2 GiB" in result.stderr


def test_b027_a_container_gets_shared_memory_by_its_ranks(container):
    spec = "build/llama-3.1-405b-h200x4.yaml"
    shown = container.build(spec, "--dry-run").stdout
    line = next(line for line in shown.splitlines() if "trtspec-engine-target" in line)
    assert "--shm-size 4g --ulimit memlock=-1 --ulimit stack=67108864" in line
    assert shutil.which("docker") is not None
