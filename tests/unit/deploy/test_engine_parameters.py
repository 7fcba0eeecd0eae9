"""Each parameter's value as the C++ backend would read it."""

from __future__ import annotations

import re

import pytest

from trt_spec.deploy.deployment import EngineDeployment
from trt_spec.deploy.dialect import RECORDED_VERSIONS, load_dialect
from trt_spec.deploy.engine_parameters import STATED, plan_engine_parameters
from trt_spec.errors import SpecError

ENGINE = EngineDeployment("/m/e", None, 640, gpu_device_ids=(2, 3), participant_ids=(4, 5), nodes=2)

# How the backend parses each key (model_instance_state.cc, model_state.cc at v0.14.0 to v0.19.0); an empty or missing
# value is not given to the executor at all.
INTEGER, NUMBER, BOOLEAN, LIST = r"-?\d+", r"\d+(\.\d+)?", "true|false", r"\d+(,\d+)*"
GRAMMAR = {
    "max_beam_width": INTEGER,
    "max_tokens_in_paged_kv_cache": INTEGER,
    "sink_token_length": INTEGER,
    "kv_cache_free_gpu_mem_fraction": NUMBER,
    "cross_kv_cache_fraction": NUMBER,
    "kv_cache_host_memory_bytes": INTEGER,
    "kv_cache_onboard_blocks": BOOLEAN,
    "max_attention_window_size": LIST,
    "enable_trt_overlap": BOOLEAN,
    "exclude_input_in_output": BOOLEAN,
    "cancellation_check_period_ms": INTEGER,
    "stats_check_period_ms": INTEGER,
    "iter_stats_max_iterations": INTEGER,
    "request_stats_max_iterations": INTEGER,
    "enable_kv_cache_reuse": BOOLEAN,
    "normalize_log_probs": BOOLEAN,
    "enable_chunked_context": BOOLEAN,
    "gpu_device_ids": LIST,
    "participant_ids": LIST,
    "num_nodes": INTEGER,
    "lora_cache_optimal_adapter_size": INTEGER,
    "lora_cache_max_adapter_size": INTEGER,
    "lora_cache_gpu_memory_fraction": NUMBER,
    "lora_cache_host_memory_bytes": INTEGER,
    "gpu_weights_percent": NUMBER,
    "enable_context_fmha_fp32_acc": BOOLEAN,
    "multi_block_mode": BOOLEAN,
    "cuda_graph_mode": BOOLEAN,
    "cuda_graph_cache_size": INTEGER,
    "speculative_decoding_fast_logits": BOOLEAN,
}
WORDS = {
    "gpt_model_type": "inflight_fused_batching",
    "gpt_model_path": "/m/e",
    "batch_scheduler_policy": "guaranteed_no_evict",
}


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_every_value_parses_as_its_type_or_is_unset(version: str) -> None:
    template = load_dialect(version).models["tensorrt_llm"]
    values = plan_engine_parameters(template, ENGINE)
    assert values.keys() == template.parameters.keys() | template.fixed_parameters.keys()
    for key, value in values.items():
        if key in template.fixed_parameters:
            assert value == template.fixed_parameters[key]
        elif key in WORDS:
            assert value == WORDS[key]
        elif value:
            assert re.fullmatch(GRAMMAR[key], value), f"{key}: {value!r}"


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_documented_defaults_are_written_unless_a_row_says_why_not(version: str) -> None:
    template = load_dialect(version).models["tensorrt_llm"]
    values = plan_engine_parameters(template, ENGINE)
    differing = {key for key, default in template.parameters.items() if default is not None and values[key] != default}
    assert differing <= STATED.keys() | {"num_nodes"}
    assert not [key for key, row in STATED.items() if len(row.why) < 10]


def test_what_must_not_be_a_default() -> None:
    values = plan_engine_parameters(load_dialect("1.2.1").models["tensorrt_llm"], ENGINE)
    assert values["cross_kv_cache_fraction"] == ""  # a decoder-only model refuses to start with one
    assert int(values["lora_cache_host_memory_bytes"]) == 2**30
    assert 0.9 < float(values["kv_cache_free_gpu_mem_fraction"]) < 1.0
    # From 0.19 on the backend reads these without a safeguard: they must be there.
    assert {"tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path"} <= values.keys()


def test_what_is_derived() -> None:
    values = plan_engine_parameters(load_dialect("1.2.1").models["tensorrt_llm"], ENGINE, fast_logits=True)
    assert values["gpu_device_ids"] == "2,3"
    assert values["participant_ids"] == "4,5"
    assert values["num_nodes"] == "2"
    assert values["max_tokens_in_paged_kv_cache"] == "640"
    assert values["speculative_decoding_fast_logits"] == "true"


def test_fast_logits_came_with_0_15() -> None:
    with pytest.raises(SpecError, match="Fast logits"):
        plan_engine_parameters(load_dialect("0.14.0").models["tensorrt_llm"], ENGINE, fast_logits=True)
