"""What was recorded of a built engine, and whether it can run here: version, files, GPUs.

A TensorRT plan loads with the TensorRT that wrote it, on the architecture it was tuned for, and only whole. Each of the
three faults shows as the same deserialisation error at launch, so they are told apart beforehand. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import MIB
from trt_spec.plan.toolchain.containers import containers_with, find_container
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL
from trt_spec.spec.model import Role

MODEL_NAMES: Mapping[Role, str] = {"target": TARGET_MODEL, "draft": DRAFT_MODEL}
BUILD_AGAIN = "Run `trtspec build SPEC` again: only this engine is made."
ONNX_VERSION_PREFIX = "onnx-"
"""How trtspec's own engines begin the version in their config.json, where TensorRT-LLM's have theirs."""
GPU_FIELDS = ("index", "name", "compute_cap", "memory.total", "driver_version")  # of nvidia-smi --query-gpu


@dataclass(frozen=True)
class SeenGpu:
    """A GPU as nvidia-smi lists it; ``compute_capability`` is "9.0" for SM 90."""

    index: int
    name: str
    compute_capability: str
    memory_bytes: int
    driver: str


def parse_gpus(text: str) -> tuple[SeenGpu, ...]:
    """The GPUs of nvidia-smi's answer to a query of GPU_FIELDS; lines that say something else are passed over."""
    return tuple(gpu for line in text.splitlines() if (gpu := _parse_gpu(line)) is not None)


def _parse_gpu(line: str) -> SeenGpu | None:
    try:
        index, name, compute_capability, memory, driver = (part.strip() for part in line.split(","))
        return SeenGpu(int(index), name, compute_capability, int(memory) * MIB, driver)
    except ValueError:
        return None


def judge_version(engine_version: str, image: str, role: Role) -> tuple[Finding, ...]:
    """Whether the container ``image`` holds the TensorRT-LLM that wrote the engine. Unknown images are not judged."""
    container = find_container(image)
    if container is None or container.tensorrt_llm == engine_version:
        return ()
    fitting = containers_with(engine_version)
    use = f"use {fitting[0].triton}" if fitting else "use the container it was built in"
    return (
        Finding(
            "engine-version",
            "refuse",
            f"{role}: the engine was built with TensorRT-LLM {engine_version}, container {container.triton} ships "
            f"{container.tensorrt_llm} (TensorRT {container.tensorrt}).",
            f"Rebuild the engine for {container.tensorrt_llm}, or {use}.",
            role,
        ),
    )


def judge_files(record: Mapping[str, Any], found_bytes: Mapping[str, int], role: Role) -> tuple[Finding, ...]:
    """Whether every file of an engine's manifest is there in its recorded size; ``found_bytes`` are those on disk."""
    sizes = {name: entry["bytes"] for name, entry in record["files"].items()}
    return tuple(
        Finding("engine-file", "refuse", f"{role}: {fault.what}.", BUILD_AGAIN, role)
        for fault in compare_sizes(sizes, found_bytes)
    )


@dataclass(frozen=True)
class SizeFault:
    """A file whose size is not the recorded one; ``found_bytes`` is None if it is missing."""

    name: str
    expected_bytes: int
    found_bytes: int | None

    @property
    def what(self) -> str:
        """The fault in words, without a full stop."""
        if self.found_bytes is None:
            return f"{self.name} is missing (manifest {self.expected_bytes} bytes)"
        state = "is truncated" if self.found_bytes < self.expected_bytes else "is too long"
        return f"{self.name} {state} ({self.found_bytes} bytes, manifest {self.expected_bytes} bytes)"


def compare_sizes(expected_bytes: Mapping[str, int], found_bytes: Mapping[str, int]) -> tuple[SizeFault, ...]:
    """The files that are not there in their recorded size; both mappings are by file name."""
    return tuple(
        SizeFault(name, expected, found_bytes.get(name))
        for name, expected in expected_bytes.items()
        if found_bytes.get(name) != expected
    )


def judge_gpus(
    compute_capability: str, device_ids: Sequence[int], seen: Sequence[SeenGpu], role: Role
) -> tuple[Finding, ...]:
    """Whether every GPU that is to run an engine has the architecture it was built for."""
    by_index = {gpu.index: gpu for gpu in seen}
    findings = []
    for index in sorted(set(device_ids)):
        gpu = by_index.get(index)
        if gpu is not None and gpu.compute_capability == compute_capability:
            continue
        what = "is not there" if gpu is None else f"({gpu.name}) is sm{_digits(gpu.compute_capability)}"
        findings.append(
            Finding(
                "engine-gpu",
                "refuse",
                f"{MODEL_NAMES[role]} engine is sm{_digits(compute_capability)}, GPU {index} {what}.",
                f"Choose other GPUs in {role}.gpus, or build on this machine.",
                role,
            )
        )
    return tuple(findings)


def _digits(compute_capability: str) -> str:
    return compute_capability.replace(".", "")
