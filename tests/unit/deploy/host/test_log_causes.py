"""Causes told from logs: those that users posted, shortened, and words of the source where no log was at hand."""

from __future__ import annotations

import pytest

from trt_spec.deploy.host.log_causes import find_cause, find_cause_in_log
from trt_spec.deploy.host.log_digest import render_log_digest

STACK = """\
1       0x7fb1fc2614ba tensorrt_llm::common::throwRuntimeError(char const*, int, std::string const&) + 102
2       0x7fb1fe14f742 tensorrt_llm::batch_manager::TrtGptModelInflightBatching::TrtGptModelInflightBatching() + 1138
"""
# tensorrtllm_backend issues 424 and 568: the ensemble's error is the last and longest.
OTHER_VERSION = f"""\
[TensorRT-LLM][ERROR] 6: The engine plan file is not compatible with this version of TensorRT, expecting library \
version 9.2.0.5 got 9.3.0.1, please rebuild.
E0420 06:14:22.457146 115 model_lifecycle.cc:638] failed to load 'tensorrt_llm' version 1: Internal: unexpected error \
when creating modelInstanceState: [TensorRT-LLM][ERROR] Assertion failed: Failed to deserialize cuda engine \
(/tmp/tritonbuild/tensorrtllm/tensorrt_llm/cpp/tensorrt_llm/runtime/tllmRuntime.cpp:72)
{STACK}\
I0420 06:14:22.457200 115 model_lifecycle.cc:756] failed to load 'tensorrt_llm'
E0420 06:14:22.457300 115 model_repository_manager.cc:579] Invalid argument: ensemble 'ensemble' depends on \
'tensorrt_llm' which has no loaded version. Model 'tensorrt_llm' loading failed with error: version 1 is at \
UNAVAILABLE state: Internal: unexpected error when creating modelInstanceState: [TensorRT-LLM][ERROR] Assertion \
failed: Failed to deserialize cuda engine (tllmRuntime.cpp:72)
error: creating server: Internal - failed to load all models
"""
# tensorrtllm_backend issue 323
NO_REUSE = """\
E0131 07:18:59.626800 38258 backend_model.cc:634] ERROR: Failed to create instance: unexpected error when creating \
modelInstanceState: [TensorRT-LLM][ERROR] Assertion failed: When KV cache block reuse is set, model has to be built \
with paged context FMHA support (trtGptModelInflightBatching.cpp:140)
"""
# TensorRT-LLM issue 494
SMALL_CACHE = """\
[TensorRT-LLM][INFO] Using 693 tokens in paged KV cache.
E1128 16:31:49.479096 227 backend_model.cc:634] ERROR: Failed to create instance: unexpected error when creating \
modelInstanceState: maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion (i.e. \
must be larger than beam_width * tokensPerBlock * maxBlocksPerSeq)
"""
# TensorRT-LLM issue 1995
LEFT_OVER = """\
E0625 08:07:38.858565 1073 model_repository_manager.cc:579] Invalid argument: ensemble 'ensemble' depends on \
'tensorrt_llm' which has no loaded version. Model 'tensorrt_llm' loading failed with error: version 1 is at \
UNAVAILABLE state: Invalid argument: unable to find backend library for backend '${triton_backend}', try specifying \
runtime on the model configuration.;
"""
POSTED = [
    ("VERSION_MISMATCH", OTHER_VERSION),
    ("KV_REUSE", NO_REUSE),
    ("KV_TOO_SMALL", SMALL_CACHE),
    ("TEMPLATE", LEFT_OVER),
]
WORDS = [
    ("VERSION_MISMATCH", "Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed."),
    ("ENGINE_ARCH", "engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 8.0"),
    ("TEMPLATE", "Error parsing text-format inference.ModelConfig: 29:17: Expected integer or identifier, got: $"),
    ("TEMPLATE", "model '${tensorrt_llm_model_name}' is not ready"),
    ("CONFIG", "Error parsing text-format inference.ModelConfig: 7:2: no field x"),
    ("KV_REUSE", "KV cache block reuse must be enabled for speculative decoding target model"),
    ("KV_TOO_SMALL", "maxTokensInPagedKvCache (128) must be large enough to process at least 1 sequence"),
    ("GPU_COUNT", "Number of GPUs per node 1 must be at least TP (4) * PP (1)"),
    ("MPI_WORLD", "Assertion failed: mpiSize == tp * pp"),
    ("OUT_OF_MEMORY", "[TensorRT-LLM][ERROR] CUDA runtime error in cudaMallocAsync: out of memory"),
    ("TOKENIZER", "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/nope/tok'"),
    ("TOKENIZER", "Tokenizer class BaichuanTokenizer does not exist or is not currently imported."),
    ("PORT_IN_USE", "failed to start HTTP service: Unavailable - Socket '0.0.0.0:8001' already in use"),
    ("SHARED_MEMORY", "Unable to initialize shared memory key 'trtspec_0_1' to requested size (1048576 bytes)"),
    ("ENGINE_FILES", "Assertion failed: Failed to deserialize cuda engine"),
    ("DRIVER", "CUDA driver version is insufficient for CUDA runtime version"),
    ("CONTAINER_GPUS", "docker: Error response from daemon: could not select device driver with capabilities: [[gpu]]"),
    ("IMAGE", "docker: Error response from daemon: manifest for nvcr.io/x:1 not found: manifest unknown."),
    ("LIBRARY", "stub: error while loading shared libraries: libpython3.12.so.1.0: cannot open"),
    ("PLUGIN", "[TRT] [E] getPluginCreator could not find plugin: GPTAttention version: 1"),
]


def test_b081_the_leaf_comes_first_with_its_cause() -> None:
    digest = render_log_digest(OTHER_VERSION).splitlines()
    assert digest[0].startswith("6: The engine plan file is not compatible")
    assert digest[1].startswith("model tensorrt_llm: Assertion failed: Failed to deserialize cuda engine")
    assert not any("depends on" in line for line in digest)
    cause = find_cause("\n".join(digest))
    assert cause is not None
    assert cause.code == "VERSION_MISMATCH"


@pytest.mark.parametrize(("code", "log"), POSTED)
def test_b081_posted_logs(code: str, log: str) -> None:
    cause = find_cause_in_log(log)
    assert cause is not None
    assert cause.code == code


@pytest.mark.parametrize("tag", ["[1,0]<stderr>:", "[1,3]<stdout>: "])
def test_b081_lines_that_mpirun_tags(tag: str) -> None:
    tagged = "".join(f"{tag}{line}\n" for line in OTHER_VERSION.splitlines())
    assert render_log_digest(tagged) == render_log_digest(OTHER_VERSION)


@pytest.mark.parametrize(("code", "line"), WORDS)
def test_words_of_the_messages(code: str, line: str) -> None:
    cause = find_cause(line)
    assert cause is not None
    assert cause.code == code
    assert cause.remedy.endswith(".") and not cause.sentence.endswith(".")  # as they are put together


def test_what_every_start_without_a_gpu_warns_of_is_no_cause() -> None:
    log = """\
W1130 18:10:32.774905 8442 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool \
will not be available: CUDA driver version is insufficient for CUDA runtime version"
E1130 18:10:34.101203 8442 model_lifecycle.cc:642] "failed to load 'ensemble' version 1: Internal: IndentationError: \
unexpected indent (model.py, line 190)"
error: creating server: Internal - failed to load all models
"""
    assert find_cause_in_log(log) is None
    assert "IndentationError" in render_log_digest(log)


def test_a_sound_log_has_no_cause() -> None:
    assert find_cause("I1129 17:03:45.426502 9004 model_lifecycle.cc:839] \"successfully loaded 'a'\"") is None
    assert (
        find_cause('W1129 17:03:32.774905 8442 pinned_memory_manager.cc:273] "Unable to allocate pinned memory"')
        is None
    )
