"""Judging driver, GPUs, their links and the way into a container with them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from trt_spec.build.doctor.check import GPU_BACKENDS, Check, Colour
from trt_spec.build.doctor.machine import GpuReading, Links, Machine, NvidiaReading, Runtime
from trt_spec.plan.hardware import FP8_COMPUTE_CAPABILITY, GIB
from trt_spec.plan.toolchain import Profile, load_profile
from trt_spec.spec.model import Backend
from trt_spec.spec.rules import FIRST_LLMAPI_RELEASE, SUPPORTED_TENSORRT_LLM

MIN_COMPUTE_CAPABILITY = (8, 0)  # Ampere: TensorRT-LLM's support matrix lists nothing older
TOOLKIT_REMEDY = "Install the NVIDIA container toolkit, run `nvidia-ctk runtime configure`, restart the daemon."
_PEER_OK = "OK"


def judge_driver(nvidia: NvidiaReading, profile: Profile) -> Check:
    """The driver against the oldest one that the CUDA of this TensorRT-LLM runs on."""
    name, wanted = "driver", profile.min_driver
    if nvidia.driver is None:
        return Check(
            name,
            "red",
            f"no NVIDIA driver ({nvidia.fault})",
            GPU_BACKENDS,
            "engines can neither be built nor run here.",
            f"Install the NVIDIA driver {wanted or profile.driver} or newer, or build on a GPU host.",
        )
    if wanted is not None and _key(nvidia.driver) < _key(wanted):
        return Check(
            name,
            "red",
            nvidia.driver,
            GPU_BACKENDS,
            f"TensorRT-LLM {profile.version} (CUDA {profile.cuda}) needs {wanted} or newer.",
            f"Update the driver to {profile.driver}{_older_way_out(nvidia.driver)}.",
        )
    meaning = f"new enough for TensorRT-LLM {profile.version}: {wanted or 'any'} or newer."
    return Check(name, "green", nvidia.driver, GPU_BACKENDS, meaning)


def _older_way_out(driver: str) -> str:
    for version in reversed(SUPPORTED_TENSORRT_LLM):
        wanted = load_profile(version).min_driver
        if wanted is not None and _key(wanted) <= _key(driver):
            return f", or set `tensorrt_llm: {version!r}` for backend engine"
    return ""


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def judge_gpus(nvidia: NvidiaReading) -> Check:
    """Names, memory and compute capability: what cannot run, what lacks FP8, what does not belong together."""
    name = "GPUs"
    if not nvidia.gpus:
        remedy = "Use a GPU host, or rehearse the pair with `backend: onnx`."
        if nvidia.driver is not None:  # a driver whose tools fail: its own words say most
            remedy = "Restart the machine if its driver was just updated; pass the GPUs on to a container (--gpus all)."
        return Check(name, "red", f"none ({nvidia.fault})", GPU_BACKENDS, "nothing to build or run engines on.", remedy)
    shown = ", ".join(f"{number} x {text}" for text, number in Counter(map(_describe, nvidia.gpus)).items())
    capabilities = [_key(gpu.compute_capability) for gpu in nvidia.gpus if gpu.compute_capability is not None]
    if any(capability < MIN_COMPUTE_CAPABILITY for capability in capabilities):
        meaning = "TensorRT-LLM supports compute capability 8.0 (Ampere) and newer."
        return Check(name, "red", shown, GPU_BACKENDS, meaning, "Use newer GPUs.")
    if len({gpu.name for gpu in nvidia.gpus}) > 1:
        meaning = "an engine runs on the kind of GPU that it was built on, and its ranks need the same kind."
        remedy = "Name the GPUs of each model in the spec (`gpus:`), all of one kind."
        return Check(name, "amber", shown, GPU_BACKENDS, meaning, remedy)
    if any(capability < FP8_COMPUTE_CAPABILITY for capability in capabilities):
        meaning = "no FP8 below compute capability 8.9: `quantization: fp8` cannot be used."
        return Check(name, "amber", shown, GPU_BACKENDS, meaning, "Keep `quantization: none` in the spec.")
    if len(capabilities) < len(nvidia.gpus):
        meaning = "the driver does not tell the compute capability: whether FP8 works is not known."
        return Check(name, "amber", shown, GPU_BACKENDS, meaning, "Update the driver.")
    return Check(name, "green", shown, GPU_BACKENDS, "supported, with FP8.")


def _describe(gpu: GpuReading) -> str:
    memory = f"{gpu.memory_bytes / GIB:.0f} GiB" if gpu.memory_bytes is not None else "memory not told"
    return f"{gpu.name} ({memory}, compute capability {gpu.compute_capability or 'not told'})"


def judge_links(nvidia: NvidiaReading) -> Iterator[Check]:
    """NVLink and peer access between all GPUs; nothing to say of one GPU."""
    if len(nvidia.gpus) < 2:
        return
    name, slow = "GPU links", "tensor parallelism adds up its results over the host instead: it works, but slower."
    pairs = tuple(itertools.combinations(sorted(gpu.index for gpu in nvidia.gpus), 2))
    without = _find_pair(nvidia.links, pairs, lambda link: link.startswith("NV"))
    if nvidia.links is None or len(nvidia.links) < len(pairs):
        remedy = "Run `nvidia-smi topo -m` and see what it says."
        yield Check(name, "amber", "topology not readable", GPU_BACKENDS, "links are not known.", remedy)
    elif without is not None:
        found = f"GPUs {without[0]} and {without[1]} are linked by {nvidia.links[without]}, not NVLink"
        remedy = "Put each model on GPUs that NVLink joins, or on fewer of them (`tensor_parallel`, `gpus`)."
        yield Check(name, "amber", found, GPU_BACKENDS, slow, remedy)
    else:
        found = f"NVLink between all {len(nvidia.gpus)} GPUs ({', '.join(sorted(set(nvidia.links.values())))})"
        yield Check(name, "green", found, GPU_BACKENDS, "all-reduces use NVLink.")
    blocked = _find_pair(nvidia.peers, pairs, lambda status: status == _PEER_OK)
    if nvidia.peers is not None and blocked is not None:
        found = f"GPUs {blocked[0]} and {blocked[1]} cannot read each other's memory ({nvidia.peers[blocked]})"
        remedy = "Look for IOMMU, ACS or virtualisation settings that block peer access."
        yield Check("peer access", "amber", found, GPU_BACKENDS, slow, remedy)


def _find_pair(
    links: Links | None, pairs: tuple[tuple[int, int], ...], is_good: Callable[[str], bool]
) -> tuple[int, int] | None:
    return next((pair for pair in pairs if links and pair in links and not is_good(links[pair])), None)


def is_native(machine: Machine, profile: Profile) -> bool:
    """Whether engines are built without a container: exactly this TensorRT-LLM is installed beside trtspec."""
    return machine.tensorrt_llm == profile.version and machine.has_builder


def find_dependent(machine: Machine, profile: Profile) -> tuple[Backend, ...]:
    """The backends that need a container: their TensorRT-LLM is not installed here. For llmapi any from 1.0 on is."""
    installed = machine.tensorrt_llm
    has_llmapi = installed is not None and _key(installed) >= FIRST_LLMAPI_RELEASE
    native = {"engine": is_native(machine, profile), "llmapi": has_llmapi}
    return tuple(backend for backend in GPU_BACKENDS if not native[backend])


def judge_runtime(machine: Machine, profile: Profile) -> Check:
    """A runtime whose daemon answers; a client without one cannot start anything."""
    name = "container runtime"
    working = find_runtime(machine)
    if working is not None:
        meaning = f"{profile.container} can be started."
        return Check(name, "green", f"{working.name} {working.version}", GPU_BACKENDS, meaning)
    found = "; ".join(f"{runtime.name}: {runtime.fault}" for runtime in machine.runtimes)
    remedy = "Install and start docker (or podman), and let your user reach it (group docker)."
    dependent = find_dependent(machine, profile)
    if not dependent:
        meaning = f"not needed: TensorRT-LLM {machine.tensorrt_llm} is installed here."
        return Check(name, "amber", found, GPU_BACKENDS, meaning, "To run Triton from its container: " + remedy)
    meaning = f"{profile.container} cannot be started, and TensorRT-LLM {profile.version} is not installed here."
    return Check(name, "red", found, dependent, meaning, remedy)


def find_runtime(machine: Machine) -> Runtime | None:
    """The first that works is the one that builds use."""
    return next((runtime for runtime in machine.runtimes if runtime.fault is None), None)


def judge_toolkit(machine: Machine, profile: Profile) -> Iterator[Check]:
    """NVIDIA's container toolkit, without which a container sees no GPU; no line where no container starts anyway."""
    name, runtime = "NVIDIA container toolkit", find_runtime(machine)
    if runtime is None:
        return
    if runtime.sees_gpus:
        yield Check(name, "green", f"{runtime.name} lists it", GPU_BACKENDS, "containers see the GPUs.")
    elif machine.toolkit is not None:
        found = f"{machine.toolkit}, but {runtime.name} does not list it"
        meaning = "containers may not see the GPUs."
        yield Check(name, "amber", found, GPU_BACKENDS, meaning, TOOLKIT_REMEDY)
    else:
        dependent = find_dependent(machine, profile)
        colour: Colour = "red" if dependent else "amber"
        meaning = "containers do not see the GPUs."
        yield Check(name, colour, "absent", dependent or GPU_BACKENDS, meaning, TOOLKIT_REMEDY)
