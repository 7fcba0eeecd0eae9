"""Every setting that a builder can change in silence: told where it only costs, refused where it breaks."""

from __future__ import annotations

import json

import pytest

# Path=value in config.json, code of the finding.
REFUSED = {
    "build_config.speculative_decoding_mode=1": "speculative_decoding_mode 1, planned 2: 2 is draft_tokens_external",
    "build_config.max_draft_len=3": "max_draft_len 3, planned 4",
    "build_config.max_seq_len=100": "max_seq_len 100, planned 132: requests that the spec allows would be refused",
    "build_config.max_input_len=32": "max_input_len 32, planned 64",
    "build_config.max_batch_size=2": "max_batch_size 2, planned 4",
    "build_config.max_num_tokens=128": "max_num_tokens 128, planned 516",
    "build_config.max_num_tokens=null": "max_num_tokens nothing, planned 516",
    "build_config.max_beam_width=2": "max_beam_width 2, planned 1",
    'build_config.kv_cache_type="CONTINUOUS"': 'kv_cache_type "CONTINUOUS", planned "paged"',
    "build_config.kv_cache_type=null": 'kv_cache_type nothing, planned "paged"',
    "build_config.gather_context_logits=true": "it switches KV cache block reuse off",
    "build_config.plugin_config.use_paged_context_fmha=false": "off for an FP8 cache on unquantised weights",
    "build_config.plugin_config.paged_kv_cache=false": "paged_kv_cache false",
    "build_config.plugin_config.remove_input_padding=false": "remove_input_padding false",
    "build_config.plugin_config.context_fmha=null": "context_fmha nothing",
    "build_config.plugin_config.gpt_attention_plugin=null": "gpt_attention_plugin nothing",
    "build_config.plugin_config.tokens_per_block=128": "tokens_per_block 128",
    'pretrained_config.logits_dtype="float16"': "the served models declare it",
    "pretrained_config.vocab_size=1": "this is another model, or another precision",
    'pretrained_config.dtype="float16"': 'dtype "float16", planned "bfloat16"',
    "pretrained_config.mapping.world_size=4": "world_size 4, planned 2",
    "pretrained_config.mapping.tp_size=1": "tp_size 1, planned 2",
    "pretrained_config.mapping.pp_size=2": "pp_size 2, planned 1",
    'pretrained_config.quantization.quant_algo="FP8"': 'quant_algo "FP8", planned null',
    'pretrained_config.quantization.kv_cache_quant_algo="FP8"': 'kv_cache_quant_algo "FP8", planned null',
    'version="1.2.0"': 'the engine says version "1.2.0", planned "1.2.1"',
}
REPORTED = {
    "build_config.max_num_tokens=9999": "engine-max-num-tokens",
    "build_config.max_seq_len=9999": "engine-max-seq-len",
    "build_config.max_batch_size=64": "engine-max-batch-size",
    "build_config.max_input_len=9999": "engine-max-input-len",
    "build_config.gather_generation_logits=true": "engine-gather-generation-logits",
    "build_config.plugin_config.use_fp8_context_fmha=true": "engine-use-fp8-context-fmha",
}


@pytest.mark.parametrize("change", REFUSED)
def test_an_engine_that_is_not_what_was_planned_is_refused(native, change):
    native.set(fault=f"target:{change}")
    result = native.build(native.write_spec())
    assert result.exit_code == 1
    assert "the engine is not what was planned" in result.stderr
    assert REFUSED[change] in result.stderr
    assert not native.workspace.engine("target").exists()
    (kept,) = native.workspace.logs.glob("engine-target.*.config.json")
    assert json.loads(kept.read_text())["build_config"]
    assert native.hidden() == []


@pytest.mark.parametrize("change", REPORTED)
def test_a_change_that_only_costs_is_told_and_kept_in_the_manifest(native, change):
    native.set(fault=f"target:{change}")
    result = native.build(native.write_spec())
    assert result.exit_code == 0, result.output
    (finding,) = native.record("target")["findings"]
    assert (finding["code"], finding["severity"]) == (REPORTED[change], "warn")
    assert finding["message"] in result.stderr


def test_the_engine_of_every_version_passes(machine, version):
    """An undisturbed build has no findings: spelling of the KV type and additions of max_draft_len are expected."""
    machine.install_tensorrt_llm(version)
    assert machine.build(machine.write_spec(version)).exit_code == 0
    assert machine.record("target")["findings"] == machine.record("draft")["findings"] == []


def test_logits_for_acceptance_must_be_gathered(native):
    native.set(fault="target:build_config.gather_generation_logits=false")
    result = native.build(native.write_spec(speculation={"accept": "logits"}))
    assert result.exit_code == 1
    assert "gather_generation_logits false, planned true: acceptance by logits needs them" in result.stderr
