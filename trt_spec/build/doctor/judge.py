"""All judgements of a machine in the order they are shown, and their JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict

from trt_spec import __version__
from trt_spec.build.doctor.check import BACKENDS, Diagnosis
from trt_spec.build.doctor.gpu_checks import judge_driver, judge_gpus, judge_links, judge_runtime, judge_toolkit
from trt_spec.build.doctor.host_checks import (
    judge_embedded_triton,
    judge_extras,
    judge_hub_login,
    judge_memory,
    judge_place,
    judge_platform,
    judge_shared_memory,
)
from trt_spec.build.doctor.machine import EmbeddedTriton, Machine
from trt_spec.plan.toolchain import Profile


def judge_machine(machine: Machine, triton: EmbeddedTriton, profile: Profile) -> Diagnosis:
    """Every check of ``machine``, for engines of the TensorRT-LLM of ``profile``. Pure."""
    checks = (
        judge_platform(machine),
        judge_embedded_triton(triton),
        judge_driver(machine.nvidia, profile),
        judge_gpus(machine.nvidia),
        *judge_links(machine.nvidia),
        judge_runtime(machine, profile),
        *judge_toolkit(machine, profile),
        *judge_memory(machine),
        *judge_shared_memory(machine, profile),
        *(judge_place(place, machine) for place in machine.places),
        judge_hub_login(machine),
        *judge_extras(machine, profile),
    )
    return Diagnosis(profile.version, checks)


def render_json(diagnosis: Diagnosis, machine: Machine) -> str:
    """One JSON document: which backends work, every check, and the GPUs; sizes in bytes."""
    nvidia = machine.nvidia
    document = {
        "trtspec": __version__,
        "tensorrt_llm": diagnosis.tensorrt_llm,
        "backends": {
            backend: {
                "works": diagnosis.is_usable(backend),
                "obstacles": [check.name for check in diagnosis.find_obstacles(backend)],
            }
            for backend in BACKENDS
        },
        "checks": [asdict(check) for check in diagnosis.checks],
        "gpus": [asdict(gpu) for gpu in nvidia.gpus],
        "links": {f"{first}-{second}": link for (first, second), link in (nvidia.links or {}).items()},
    }
    return json.dumps(document, indent=2) + "\n"
