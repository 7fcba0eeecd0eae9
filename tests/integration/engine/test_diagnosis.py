"""Log lines as the real tools print them (seen in public issues), and what is said of them."""

from __future__ import annotations

import pytest

from trt_spec.build.engine.diagnosis import diagnose

LINES = {
    "OSError: [Errno 28] No space left on device": "The disk is full.",
    "RuntimeError: CUDA driver version is insufficient for CUDA runtime version": "driver is too old",
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.1": "driver is too old",
    'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].': "give GPUs",
    "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0": "give GPUs",
    "docker: Error response from daemon: manifest unknown: manifest unknown.": "image cannot be pulled",
    "[TRT] [E] IRuntime::deserializeCudaEngine: Error Code 1: Serialization assertion stdVersionRead == kSERIALIZATION"
    "_VERSION failed": "Two versions of TensorRT meet",
    "Engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 8.0": "architecture",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device": "architecture",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 28.00 GiB": "GPU memory ran out",
    "[TRT] [E] [virtualMemoryBuffer.cpp] Error Code 2: OutOfMemory (no further information)": "GPU memory ran out",
    "[TRT] [E] 3: getPluginCreator could not find plugin: Gemm version: 1": "plugin is missing",
    "GatedRepoError: 401 Client Error. Access to model meta-llama/Llama-3.2-1B is restricted.": "gated",
    "ConnectionError: Couldn't reach the dataset 'cnn_dailymail' on the Hub": "calibration data",
    "tensorrt_llm NCCL error: internal error": "NCCL fails",
    "Bus error (core dumped)": "Shared memory ran out",
    "trtllm-build: error: unrecognized arguments: --paged_state enable": "does not take a flag",
    "PermissionError: [Errno 13] Permission denied: '/work/engines'": "cannot be read or written",
    "bash: line 1:  4711 Killed                  trtllm-build --checkpoint_dir x": "by the host",
}


@pytest.mark.parametrize("line", LINES)
def test_a_known_line_is_explained(line):
    found = diagnose(1, f"[TRT-LLM] [I] Set dtype to bfloat16.\n{line}\n")
    assert found is not None and LINES[line] in found.sentence
    assert found.remedy.endswith((".", ")."))


def test_a_line_of_every_day_is_not_mistaken():
    log = "[TRT-LLM] [I] Total time of reading and converting rank0: 00:00:12\n[TRT] [W] Unused Input: lora\n"
    assert diagnose(1, log) is None


def test_a_cause_counts_before_the_kill_that_follows():
    found = diagnose(137, "OSError: [Errno 28] No space left on device\nKilled\n")
    assert found is not None and found.sentence == "The disk is full."
