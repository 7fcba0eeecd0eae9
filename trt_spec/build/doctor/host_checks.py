"""Judging the host: platform, memory, disk, the hub's login and the Python packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trt_spec.build.doctor.check import BACKENDS, GPU_BACKENDS, Check, Colour
from trt_spec.build.doctor.gpu_checks import find_runtime, is_native
from trt_spec.build.doctor.machine import EmbeddedTriton, Machine, Place
from trt_spec.plan.build_cost import BUILD_COPIES, BUILDER_BYTES
from trt_spec.plan.hardware import GIB, MIB
from trt_spec.plan.toolchain import Profile
from trt_spec.spec.model import Backend

SYSTEM = "linux"
ARCHITECTURES = ("x86_64", "aarch64")

ONNX_MEMORY_BYTES = 4 * GIB  # two engines of the demo model while one is being made
ONNX_DISK_BYTES = 2 * GIB  # the demo: download, two engines, repository
LEAST_DISK_BYTES = GIB // 4  # below it not even configuration and logs are safe
ENGINE_DISK_COPIES = 3  # source, checkpoint and engine of the same weights lie beside each other
ONNX_SHARED_BYTES = 64 * MIB  # docker's default; a Python model of Triton takes one or more MiB for each process
SHARED_BYTES_PER_RANK = GIB  # NCCL between the ranks of one host (TensorRT-LLM issue 408)
LEAST_SHARED_BYTES = 2 * GIB

PLAN_HINT = "`trtspec plan SPEC` says what your pair needs."


class _Extra(NamedTuple):
    concerns: tuple[Backend, ...]
    use: str


_EXTRAS = {
    "local": _Extra(("onnx",), "building and serving ONNX engines."),
    "client": _Extra(BACKENDS, "`trtspec verify` against a running server."),
    "hub": _Extra(BACKENDS, "models named by a Hugging Face hub id."),
    "plot": _Extra(BACKENDS, "`trtspec plan --plot`."),
}


def judge_platform(machine: Machine) -> Check:
    """Linux on x86-64 or ARM; anything else can only plan."""
    shown = f"{machine.system} {machine.architecture}, {machine.c_library or 'C library not glibc'}"
    found = f"{shown}, Python {machine.python}"
    if machine.system == SYSTEM and machine.architecture in ARCHITECTURES:
        return Check("platform", "green", found, BACKENDS, "supported.")
    meaning = "Triton and TensorRT-LLM run on Linux x86-64 and aarch64 only; `init` and `plan` work here."
    return Check("platform", "red", found, BACKENDS, meaning, "Use a Linux machine for everything after the plan.")


def judge_embedded_triton(triton: EmbeddedTriton) -> Check:
    """The server that rehearses a deployment without a GPU."""
    if triton.fault is not None:
        meaning = "the repository cannot be rehearsed here."
        return Check("embedded Triton", "red", triton.fault, ("onnx",), meaning, triton.remedy)
    found = f"nvidia-pytriton {triton.version}"
    return Check("embedded Triton", "green", found, ("onnx",), "serves the repository on this CPU.")


def judge_memory(machine: Machine) -> Iterator[Check]:
    """Host memory, for the rehearsal and, where there are GPUs, for an engine that fills the largest of them."""
    size = machine.memory_bytes
    if size is None:
        yield Check("memory", "amber", "not readable", BACKENDS, "whether it suffices is not known.", PLAN_HINT)
        return
    found = f"{_gib(size)} available"
    if size < ONNX_MEMORY_BYTES:
        meaning = f"models much smaller than {_gib(ONNX_MEMORY_BYTES)} only."
        yield Check("memory", "amber", found, ("onnx",), meaning, f"Use {_gib(ONNX_MEMORY_BYTES)} or more.")
    else:
        yield Check("memory", "green", found, ("onnx",), "enough for the demo pair.")
    largest = max((gpu.memory_bytes or 0 for gpu in machine.nvidia.gpus), default=0)
    if not machine.nvidia.gpus:
        return
    if size < BUILDER_BYTES:
        meaning = f"trtllm-build takes about {_gib(BUILDER_BYTES)} before any weights."
        yield Check("memory for engines", "red", found, ("engine",), meaning, "Build on a larger host.")
    elif size < BUILDER_BYTES + BUILD_COPIES * largest:
        meaning = f"an engine that fills a GPU is built with about {_gib(BUILDER_BYTES + BUILD_COPIES * largest)}."
        yield Check("memory for engines", "amber", found, ("engine",), meaning, PLAN_HINT)
    else:
        meaning = "enough to build an engine that fills a GPU, one rank at a time."
        yield Check("memory for engines", "green", found, ("engine",), meaning)


def judge_shared_memory(machine: Machine, profile: Profile) -> Iterator[Check]:
    """/dev/shm of this host or container; a container that trtspec starts gets its own, of the right size."""
    place = machine.shared_memory
    name = place.path
    if place.free_bytes is None or not place.is_writable:
        found = place.fault or "not writable"
        meaning = "Triton's Python models pass their tensors through it."
        yield Check(name, "red", found, ("onnx",), meaning, f"Mount a writable tmpfs at {name}.")
        return
    found = f"{_gib(place.free_bytes)} free"
    if place.free_bytes < ONNX_SHARED_BYTES:
        meaning = "Triton's Python models may find no room for their tensors."
        yield Check(name, "amber", found, ("onnx",), meaning, "Start the container with `--shm-size 1g`.")
    else:
        yield Check(name, "green", found, ("onnx",), "room for Triton's Python models.")
    ranks = len(machine.nvidia.gpus)
    wanted = max(LEAST_SHARED_BYTES, SHARED_BYTES_PER_RANK * ranks)
    if ranks > 1 and is_native(machine, profile) and place.free_bytes < wanted:
        meaning = f"NCCL between {ranks} ranks wants {_gib(wanted)}."
        remedy = f"Start this container with `--shm-size {wanted // GIB}g`, or remount {name} larger."
        yield Check(f"{name} for engines", "amber", found, GPU_BACKENDS, meaning, remedy)


def judge_place(place: Place, machine: Machine) -> Check:
    """Room in a folder that will be written to."""
    name = f"{place.label} disk"
    if place.free_bytes is None or not place.is_writable:
        found = f"{place.path}: {place.fault or 'not writable'}"
        way = "Name another one with -o." if place.label == "workspace" else "Set TRTSPEC_CACHE to another one."
        return Check(name, "red", found, BACKENDS, "nothing can be written to that folder.", way)
    found = f"{_gib(place.free_bytes)} free at {place.path}"
    remedy = "Free some room or use another disk; `trtspec build SPEC --prune` removes old outputs."
    if place.free_bytes < LEAST_DISK_BYTES:
        return Check(name, "red", found, BACKENDS, "no room to work in.", remedy)
    if place.free_bytes < ONNX_DISK_BYTES:
        return Check(name, "amber", found, BACKENDS, f"the demo alone takes {_gib(ONNX_DISK_BYTES)}.", remedy)
    filled = ENGINE_DISK_COPIES * sum(gpu.memory_bytes or 0 for gpu in machine.nvidia.gpus)
    if place.label == "workspace" and place.free_bytes < filled:
        meaning = f"a pair that fills these GPUs leaves about {_gib(filled)}. {PLAN_HINT}"
        return Check(name, "amber", found, ("engine",), meaning, remedy)
    return Check(name, "green", found, BACKENDS, "enough." if filled else "enough for a rehearsal.")


def judge_hub_login(machine: Machine) -> Check:
    """Whether gated models can be fetched; that the token is valid is for the hub to say."""
    if machine.hub_login is not None:
        found = f"a token in {machine.hub_login}"
        return Check("hub login", "green", found, BACKENDS, "gated models can be asked for.")
    meaning = "gated models (Llama and others) cannot be fetched; open ones and local folders can."
    return Check("hub login", "amber", "no token", BACKENDS, meaning, "Run `hf auth login`, or set HF_TOKEN.")


def judge_extras(machine: Machine, profile: Profile) -> Iterator[Check]:
    """The optional parts of trtspec, one line each."""
    if machine.missing is None:
        meaning = "which extras are complete cannot be told."
        remedy = "Install trtspec with pip, for example `pip install 'trtspec[local]'`."
        yield Check("extras", "amber", "trtspec runs without being installed", BACKENDS, meaning, remedy)
    for extra, about in _EXTRAS.items() if machine.missing is not None else ():
        name, missing = f"extra {extra}", (machine.missing or {}).get(extra, ())
        if not missing:
            yield Check(name, "green", "complete", about.concerns, f"for {about.use}")
            continue
        colour: Colour = "red" if extra == "local" else "amber"
        found, remedy = f"missing {', '.join(missing)}", f"Run `pip install 'trtspec[{extra}]'`."
        yield Check(name, colour, found, about.concerns, f"needed for {about.use}", remedy)
    yield _judge_engine_extra(machine, profile)


def _judge_engine_extra(machine: Machine, profile: Profile) -> Check:
    name, version = "extra engine", machine.tensorrt_llm
    if is_native(machine, profile):
        meaning = "engines are built here, without a container."
        return Check(name, "green", f"TensorRT-LLM {version}", GPU_BACKENDS, meaning)
    found = f"TensorRT-LLM {version}" if version else "TensorRT-LLM is not installed"
    if find_runtime(machine) is not None:
        meaning = f"not needed: engines are built in the container of {profile.version}."
        return Check(name, "green", found, GPU_BACKENDS, meaning)
    remedy = f"Use a container runtime, or install tensorrt-llm=={profile.version} from NVIDIA's package index."
    return Check(name, "amber", found, GPU_BACKENDS, f"{profile.version} is needed where no container runs.", remedy)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes < 10 * GIB else f"{size_bytes / GIB:.0f} GiB"
