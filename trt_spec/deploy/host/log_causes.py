"""Known causes of a failed start, told from Triton's log: a code, one sentence, a remedy.

The patterns are words of messages that users of tensorrtllm_backend and TensorRT-LLM reported or that their source
prints (``trtGptModelInflightBatching.cpp``, ``kvCacheManager.cpp``, ``worldConfig.cpp``, ``tllmRuntime.cpp``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trt_spec.deploy.host.log_digest import drop_noise, render_log_digest


class Cause(NamedTuple):
    """Why a server did not start; ``code`` is stable."""

    code: str
    sentence: str
    remedy: str


class _Known(NamedTuple):
    pattern: re.Pattern[str]
    cause: Cause


def _known(code: str, pattern: str, sentence: str, remedy: str) -> _Known:
    return _Known(re.compile(pattern, re.IGNORECASE), Cause(code, sentence, remedy))


# The first that is found counts: what causes other failures stands before them.
_CAUSES = (
    _known(
        "LIBRARY",
        r"error while loading shared libraries",
        "A model's process lacks a shared library",
        "Install the library that the log names, or run inside NVIDIA's container.",
    ),
    _known(
        "DRIVER",
        r"CUDA driver version is insufficient|unsatisfied condition: cuda|forward compatibility was attempted",
        "The NVIDIA driver is too old for this container's CUDA",
        "Update the driver, or build for an older tensorrt_llm; `trtspec plan` prints what each needs.",
    ),
    _known(
        "CONTAINER_GPUS",
        r"could not select device driver|unknown or invalid runtime name|nvidia-container-cli: ",
        "Docker cannot give GPUs to containers",
        "Install NVIDIA's container toolkit and configure docker with `nvidia-ctk`.",
    ),
    _known(
        "IMAGE",
        r"manifest unknown|pull access denied|manifest for .{0,200} not found|no basic auth credentials",
        "The container image cannot be pulled",
        "Pull it by hand to see why (a login at nvcr.io, a proxy), or load it from a machine that has it.",
    ),
    _known(
        "TEMPLATE",
        r"expected integer or identifier, got: \$|unable to find backend library for backend '\$\{|'\$\{\w+\}'",
        "A placeholder of a template was left in a config.pbtxt",
        "Write the repository with `trtspec deploy`, or find the placeholder with `trtspec check`.",
    ),
    _known(
        "CONFIG",
        r"Error parsing text-format inference\.ModelConfig|failed to read text proto",
        "A config.pbtxt does not parse",
        "`trtspec check` names the line.",
    ),
    _known(
        "VERSION_MISMATCH",
        r"stdVersionRead|kSERIALIZATION_VERSION|expecting library version|not compatible with this version of TensorRT",
        "The engine was built with another TensorRT than the one here",
        "Serve it in the container of the version that built it, or build it again for this one.",
    ),
    _known(
        "ENGINE_ARCH",
        r"incompatible device|expecting compute [\d.]+ got|no kernel image is available",
        "The engine was built for another GPU architecture",
        "Build on the GPU that will serve, or choose GPUs of that kind.",
    ),
    _known(
        "KV_REUSE",
        r"KV cache block reuse (is set, model has to be built with paged context FMHA|must be enabled)",
        "The engine cannot reuse KV cache blocks, which draft-target needs",
        "Build it with --use_paged_context_fmha enable (`trtspec build` does), and set enable_kv_cache_reuse to true.",
    ),
    _known(
        "KV_TOO_SMALL",
        r"maxTokensInPagedKvCache .{0,20}must be large enough|must hold at least one sequence",
        "The KV cache does not hold one sequence of full length",
        "Lower limits.max_input_len or max_output_len, or give the engine more memory; see `trtspec plan`.",
    ),
    _known(
        "OUT_OF_MEMORY",
        r"CUDA out of memory|cudaErrorMemoryAllocation|CUDA error: out of memory|OutOfMemory|"
        r"Cuda Runtime \(out of memory\)|CUDA_ERROR_OUT_OF_MEMORY|Requested amount of GPU memory|"
        r"CUDA runtime error in cudaMalloc",
        "GPU memory ran out",
        "Stop what else uses these GPUs (nvidia-smi); compare with the memory table of `trtspec plan`.",
    ),
    _known(
        "GPU_COUNT",
        r"Number of GPUs per node \d+ must be at least",
        "Fewer GPUs are visible than the engine has ranks",
        "Give the container all GPUs that the engines name (--gpus), and look at CUDA_VISIBLE_DEVICES.",
    ),
    _known(
        "MPI_WORLD",
        r"mpiSize == tp \* pp|MPI (world )?size .{0,80}(tp|pp|expected to be equal)|worldSize must (be equal to|equal)",
        "The number of MPI ranks does not fit the engine",
        "Start it with the command of `trtspec plan`, or with launch.sh: two engines need the orchestrator.",
    ),
    _known(
        "TOKENIZER",
        r"Repo id must|is not a local folder and is not a valid model identifier|Tokenizer class .{0,80}does not exist|"
        r"trust_remote_code=True|couldn't connect to 'https://huggingface",
        "A tokenizer cannot be loaded from where the repository names it",
        "Give the container the folder at the path that config.pbtxt names; nothing is fetched while serving.",
    ),
    _known(
        "PORT_IN_USE",
        r"Socket '[^']*' already in use|port is already allocated|address already in use",
        "Another program took a port meanwhile",
        "Choose other ports, or stop what listens there.",
    ),
    _known(
        "SHARED_MEMORY",
        r"Bus error|Unable to initialize shared memory|Failed to increase the shared memory pool|/dev/shm.{0,60}full",
        "Shared memory ran out",
        "Enlarge /dev/shm (docker: --shm-size), and remove what servers that were killed left there.",
    ),
    _known(
        "ENGINE_FILES",
        r"Failed to deserialize cuda engine|Error opening engine file|"
        r"(No such file or directory|could not open).{0,200}(rank\d+\.engine|config\.json)",
        "An engine file is missing, damaged, or of another version",
        "`trtspec check` and `trtspec build SPEC` tell which: only an engine that is not whole is made again.",
    ),
    _known(
        "PLUGIN",
        r"could not find plugin|getPluginCreator|plugin creator",
        "A TensorRT plugin is missing from the installation",
        "Use the pinned container.",
    ),
)


def find_cause_in_log(log: str) -> Cause | None:
    """The cause that the errors of a Triton log tell, or else any other of its lines."""
    return find_cause(render_log_digest(log)) or find_cause(drop_noise(log))


def find_cause(lines: str) -> Cause | None:
    """The first known cause in the lines that explain a failure; None for one that was never seen."""
    return next((known.cause for known in _CAUSES if known.pattern.search(lines)), None)
