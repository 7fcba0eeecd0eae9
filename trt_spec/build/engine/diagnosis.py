"""Known ways in which the tools fail, told from exit code and log: one sentence and a remedy."""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

HOST_KILL_CODES = (-signal.SIGKILL, 128 + signal.SIGKILL)


class Diagnosis(NamedTuple):
    """What happened, and what to do next."""

    sentence: str
    remedy: str


class _Pattern(NamedTuple):
    pattern: re.Pattern[str]
    diagnosis: Diagnosis


def _known(pattern: str, sentence: str, remedy: str) -> _Pattern:
    return _Pattern(re.compile(pattern, re.IGNORECASE), Diagnosis(sentence, remedy))


# The first that is found counts: causes stand before what they cause.
_PATTERNS = (
    _known(
        r"No space left on device|\[Errno 28\]|Disk quota exceeded",
        "The disk is full.",
        "Free space in the workspace, or choose another with -o; --discard-checkpoint frees each checkpoint as soon as "
        "its engine is inspected.",
    ),
    _known(
        r"CUDA driver version is insufficient|unsatisfied condition: cuda|forward compatibility was attempted|"
        r"driver.{0,40}(too old|is not supported)",
        "The NVIDIA driver is too old for this version's CUDA.",
        "Update the driver (`trtspec plan` prints what the container was made for), or choose an older tensorrt_llm.",
    ),
    _known(
        r"could not select device driver|unresolvable CDI devices|unknown or invalid runtime name|"
        r"nvidia-container-cli: initialization error|nvidia-container-runtime.{0,40}not found",
        "The container runtime cannot give GPUs to containers.",
        "Install NVIDIA's container toolkit and configure the runtime with `nvidia-ctk`.",
    ),
    _known(
        r"manifest unknown|pull access denied|manifest for .{0,200} not found|no basic auth credentials|"
        r"Error response from daemon: Get |"
        r"unable to find image .{0,200} locally\n.{0,400}(denied|timeout|no such host)",
        "The container image cannot be pulled.",
        "Pull it by hand to see why (a login at nvcr.io, a proxy), or load it from a machine that has it.",
    ),
    _known(
        r"expecting compute [\d.]+ got compute|no kernel image is available|incompatible device|"
        r"Unsupported (SM|compute capability|GPU arch)|sm_?\d+ is not compatible",
        "The GPU's architecture does not fit what was built or asked for.",
        "Build on the GPU that will serve, and set hardware.gpu to it.",
    ),
    _known(
        r"stdVersionRead|Serialization assertion|engine .{0,80}different version of TensorRT",
        "Two versions of TensorRT meet: one wrote a plan, another reads it.",
        "Use the container of the profile for everything; `trtspec build --force` makes the engines again.",
    ),
    _known(
        r"CUDA out of memory|cudaErrorMemoryAllocation|CUDA error: out of memory|OutOfMemory|"
        r"Cuda Runtime \(out of memory\)|CUDA_ERROR_OUT_OF_MEMORY|requested amount of GPU memory",
        "GPU memory ran out.",
        "Stop what else uses these GPUs (nvidia-smi), raise tensor_parallel, or lower the limits.",
    ),
    _known(
        r"could not find plugin|getPluginCreator|Unable to load library.{0,80}plugin|libnvinfer_plugin_tensorrt_llm"
        r".{0,80}(cannot open|not found)|Plugin .{0,80}(not found|is not registered)|plugin creator",
        "A TensorRT plugin is missing from the installation.",
        "Use the pinned container, or reinstall exactly this TensorRT-LLM.",
    ),
    _known(
        r"GatedRepo|gated repo|Access to model .{0,200} is restricted|awaiting a review|"
        r"(401|403) Client Error.{0,200}huggingface|Invalid user token|make sure .{0,60}token having permission",
        "The hub refuses a model or tokenizer: it is gated, or the login is missing.",
        "Ask for access on the model's page, then log in with `hf auth login` or set HF_TOKEN.",
    ),
    _known(
        r"Couldn't (find|reach) .{0,80}(dataset|cnn_dailymail)|ConnectionError.{0,200}dataset|"
        r"offline mode is enabled.{0,200}dataset",
        "The calibration data cannot be read from the hub.",
        "Quantise on a machine with a network, or name a checkpoint that ModelOpt has quantised.",
    ),
    _known(
        r"ncclInternalError|ncclSystemError|NCCL WARN|NCCL error",
        "NCCL fails between these GPUs.",
        "Look for its first `NCCL WARN` line in the log; shared memory, or GPUs without peer access, are usual causes.",
    ),
    _known(
        r"Bus error|SIGBUS|/dev/shm.{0,60}(full|size)",
        "Shared memory ran out.",
        "Enlarge /dev/shm (docker: --shm-size).",
    ),
    _known(
        r"unrecognized arguments|invalid choice:|argument --\w+: ",
        "trtllm-build does not take a flag that is recorded for this version.",
        "The record of flags is wrong here: report it with the log, and use another profile meanwhile.",
    ),
    _known(r"Permission denied", "A file cannot be read or written.", "Check owner and mode of the workspace."),
)


def diagnose(code: int, log: str, needed_bytes: int = 0, available_bytes: int | None = None) -> Diagnosis | None:
    """What is known of a failure with this exit code and end of the log; None for one that was never seen.

    ``needed_bytes`` and ``available_bytes`` of host memory go into the sentence about a process that was killed.
    """
    found = next((known.diagnosis for known in _PATTERNS if known.pattern.search(log)), None)
    if found is None and (
        code in HOST_KILL_CODES or re.search(r"^(.*:\s+(\d+\s+)?)?Killed\b|signal 9", log, re.MULTILINE)
    ):
        memory = f": the step needs about {needed_bytes / 1e9:.1f} GB" if needed_bytes else ""
        there = "" if available_bytes is None else f", {available_bytes / 1e9:.1f} GB were available"
        return Diagnosis(
            f"It was killed, likely by the host for lack of memory{memory}{there}.",
            "Free host memory, raise the limit of the container or job, or use fewer workers "
            "(build_flags: {ROLE: {workers: 1}}).",
        )
    return found
