"""Memory of pairs: the presets, what does not fit and what would, and how bytes follow the settings."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.plan.activations import activation_bytes, activation_bytes_per_token
from trt_spec.plan.engine_memory import measure_memory
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.hardware import GIB
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.shapes import valid_tensor_parallel

MIB = 1024**2
BF16_405B = {"model": "meta-llama/Llama-3.1-405B-Instruct", "tensor_parallel": 4}
DRAFT_3B = {"model": "meta-llama/Llama-3.2-3B-Instruct", "quantization": "none", "kv_cache_dtype": "auto"}
FP8_70B = "nvidia/Llama-3.1-70B-Instruct-FP8"


def facts_of(reference):
    return resolve_facts(load_known_model(reference).config, source=reference)


def finding_of(plan, code):
    return next(finding for finding in plan.findings if finding.code == code)


def test_the_405b_preset_fits_four_h200_with_room_for_more_than_a_batch(preset_pair):
    plan = preset_pair("llama-3.1-405b-h200x4").plan()
    assert plan.fits
    assert [gpu.index for gpu in plan.gpus] == [0, 1, 2, 3]
    assert all(gpu.total_bytes == 143771 * MIB for gpu in plan.gpus)
    assert [[engine.role for engine in gpu.engines] for gpu in plan.gpus] == [["target", "draft"]] + 3 * [["target"]]
    assert {role: pool.leftover_tokens for role, pool in plan.pools.items()} == {"target": 72096, "draft": 72352}
    assert not [finding for finding in plan.findings if finding.severity != "note"]


def test_the_70b_preset_fits_one_h200(preset_pair):
    plan = preset_pair("llama-3.1-70b-h200x1").plan()
    assert plan.fits
    assert plan.pools["target"].full_sequences == 31
    assert sum(engine.weights_bytes for engine in plan.gpus[0].engines) == pytest.approx(69.7 * GIB, rel=0.01)


def test_405b_in_bf16_needs_eight_gpus(make_pair):
    plan = make_pair(target=BF16_405B, draft=DRAFT_3B, hardware={"gpu": "H200", "gpus": 4}).plan()
    finding = finding_of(plan, "memory-does-not-fit")
    assert finding.severity == "refuse"
    assert "use 8 GPUs (target.tensor_parallel 8; valid larger sizes: 8, 16, 32, 64)" in finding.remedy
    assert "fp8 for target" in finding.remedy
    assert "max_batch_size" not in finding.remedy  # no number of tokens helps weights that do not fit
    eight = make_pair(
        target={**BF16_405B, "tensor_parallel": 8}, draft=DRAFT_3B, hardware={"gpu": "H200", "gpus": 8}
    ).plan()
    assert eight.fits


def test_a_smaller_batch_is_found_where_it_is_enough(make_pair):
    asked = {"max_batch_size": 64, "max_input_len": 2048, "max_output_len": 1024}
    pair = make_pair(gpu_bytes=80 * GIB + 128 * MIB, limits=asked)
    remedy = finding_of(pair.plan(), "memory-does-not-fit").remedy
    batch = int(remedy.split("limits.max_batch_size to ")[1].split(";")[0].rstrip("."))
    limits = {role: _for_batch(limits, batch) for role, limits in pair.limits.items()}
    assert measure_memory(replace(pair.sizing, limits=limits)).fits
    limits = {role: _for_batch(limits, batch + 1) for role, limits in pair.limits.items()}
    assert not measure_memory(replace(pair.sizing, limits=limits)).fits


def _for_batch(limits, batch):
    """At most ``batch`` sequences, and a token budget for one."""
    return replace(limits, max_batch_size=batch, max_num_tokens=2048 + 1024 + limits.max_draft_len + 1)


def test_shorter_sequences_are_found_where_one_is_too_long(make_pair):
    asked = {"max_batch_size": 1, "max_input_len": 60000, "max_output_len": 4000}
    remedy = finding_of(make_pair(gpu_bytes=84 * GIB, limits=asked).plan(), "memory-does-not-fit").remedy
    assert "limits.max_input_len + limits.max_output_len to " in remedy


def test_an_idle_gpu_for_the_draft_is_found(make_pair):
    asked = {"max_batch_size": 1, "max_input_len": 2048, "max_output_len": 1024}
    pair = make_pair(gpu_bytes=74 * GIB, limits=asked, hardware={"gpu": "H200", "gpus": 2})
    remedy = finding_of(pair.plan(), "memory-does-not-fit").remedy
    assert "set draft.gpus to [1]" in remedy
    assert (
        make_pair(gpu_bytes=74 * GIB, limits=asked, hardware={"gpu": "H200", "gpus": 2}, draft={"gpus": [1]})
        .plan()
        .fits
    )


def test_nothing_small_helps_and_the_plan_says_so(make_pair):
    plan = make_pair(gpu_bytes=2 * GIB).plan()
    assert finding_of(plan, "memory-does-not-fit").remedy == "No small change would make it fit."


def test_a_cache_too_small_for_the_batch_is_warned_about(make_pair):
    pair = make_pair(gpu_bytes=82 * GIB, limits={"max_batch_size": 4, "max_input_len": 2048, "max_output_len": 1024})
    plan = pair.plan()
    pool = plan.pools["target"]
    finding = finding_of(plan, "memory-small-batch")
    assert plan.fits
    assert 0 < pool.full_sequences < 4
    assert f"{-pool.leftover_tokens} tokens are missing" in finding.message


def test_separate_gpus_have_separate_pools(make_pair):
    pair = make_pair(hardware={"gpu": "H200", "gpus": 2}, draft={"gpus": [1]})
    pools = pair.plan().pools
    assert pools["draft"].max_tokens > pools["target"].max_tokens


def test_a_target_alone_is_planned_too(make_pair):
    pair = make_pair(draft=None, speculation={"mode": "none"})
    plan = pair.plan()
    assert plan.fits
    assert pair.limits["target"].max_draft_len == 0
    assert [step.kind for step in plan.steps] == ["fetch", "convert", "trtllm_build"]


def test_unquantised_405b_cannot_be_calibrated_on_four_h200(make_pair):
    target = {**BF16_405B, "quantization": "fp8", "kv_cache_dtype": "fp8"}
    plan = make_pair(target=target, hardware={"gpu": "H200", "gpus": 4}).plan()
    assert "~812 GB" in finding_of(plan, "memory-calibration").message


def test_steps_follow_the_checkpoints(preset_pair):
    plan = preset_pair("llama-3.1-405b-h200x4").plan()
    assert [step.id for step in plan.steps] == [
        "fetch-draft", "quantize-draft", "engine-draft", "fetch-target", "convert-target", "engine-target",
    ]  # fmt: skip
    convert = next(step for step in plan.steps if step.id == "convert-target")
    assert convert.host_memory_bytes < 16 * GIB  # tensor by tensor, whatever the model's size
    assert plan.peak_disk_bytes == sum(step.disk_bytes for step in plan.steps)
    assert all(step.wall_time_s > 0 and step.assumption for step in plan.steps)


@pytest.mark.parametrize(
    ("reference", "quantization", "tokens", "rows", "logged_mib", "tolerance"),
    [
        ("Qwen/Qwen2.5-1.5B", "none", 8192, 2048, 921.51, 1e-4),
        ("Qwen/Qwen2.5-7B", "none", 8192, 2048, 1298.01, 1e-4),
        ("meta-llama/Llama-2-7b-hf", "fp8", 8192, 4096, 928.77, 4e-3),
    ],
)
def test_activations_are_those_of_published_logs(reference, quantization, tokens, rows, logged_mib, tolerance):
    facts = facts_of(reference)
    found = activation_bytes(facts, quantization, "float16", 1, tokens, rows, facts.vocab_size)
    assert found / MIB == pytest.approx(logged_mib, rel=tolerance)


BATCHES = st.integers(1, 64)
LENGTHS = st.integers(256, 16384)


@settings(max_examples=40, deadline=None)
@given(batch=BATCHES, length=LENGTHS)
def test_more_sequences_or_longer_ones_never_need_less(make_pair, batch, length):
    def measured(batch, length):
        asked = {"max_batch_size": batch, "max_input_len": length, "max_output_len": 256}
        return measure_memory(make_pair(limits=asked).sizing)

    here, more, longer = measured(batch, length), measured(batch + 1, length), measured(batch, length + 64)
    for other in (more, longer):
        assert other.gpus[0].fixed_bytes >= here.gpus[0].fixed_bytes
        assert other.pools[0].max_tokens <= here.pools[0].max_tokens
        assert other.pools[0].sequence_tokens >= here.pools[0].sequence_tokens


@settings(max_examples=30, deadline=None)
@given(quantization=st.sampled_from(["none", "fp8"]), batch=BATCHES)
def test_more_ranks_never_need_more_on_each_gpu(make_pair, quantization, batch):
    target = {"model": FP8_70B, "quantization": quantization}
    pair = make_pair(target=target, hardware={"gpu": "H200", "gpus": 16}, limits={"max_batch_size": batch})
    before = None
    for size in valid_tensor_parallel(pair.sizing.facts["target"], 16):
        model = pair.spec.target.model_copy(update={"tensor_parallel": size})
        spec = pair.spec.model_copy(update={"target": model})
        engine = measure_memory(replace(pair.sizing, spec=spec)).gpus[0].engines[0]
        if before is not None:
            assert engine.weights_bytes <= before.weights_bytes
            assert engine.activation_bytes <= before.activation_bytes
            assert engine.kv_bytes_per_token <= before.kv_bytes_per_token
        before = engine


@given(st.sampled_from(["none", "fp8", "fp8_rowwise"]))
def test_fp8_activations_are_wider_by_their_quantised_copies(quantization):
    facts = facts_of("meta-llama/Llama-3.1-70B-Instruct")
    extra = activation_bytes_per_token(facts, quantization, "bfloat16", 1) - activation_bytes_per_token(
        facts, "none", "bfloat16", 1
    )
    assert extra == (0 if quantization == "none" else 2 * 28672 + 8192)


DOCUMENT = Path(__file__).parents[4] / "docs" / "explanation" / "memory-and-placement.md"


def test_the_documented_presets_are_the_planned_ones(preset_pair):
    large, small = (preset_pair(name).plan() for name in ("llama-3.1-405b-h200x4", "llama-3.1-70b-h200x1"))
    columns = [_column(large.gpus[0]), _column(large.gpus[1]), _column(small.gpus[0])]
    rows = DOCUMENT.read_text().split("## 5.")[1].split("## 6.")[0]
    for label in columns[0]:
        cells = " | ".join(column.get(label, "") for column in columns)
        assert f"| {label} | {cells} |".replace(" |  |", " | |") in rows
    for plan in (large, small):
        for number in (plan.pools["target"].max_tokens, plan.pools["target"].leftover_tokens):
            assert str(number) in rows


def _column(gpu):
    cells = {"memory by the driver": gpu.total_bytes}
    for engine in gpu.engines:
        cells[f"{engine.role} weights"] = engine.weights_bytes
        cells[f"{engine.role} activations"] = engine.activation_bytes
        cells[f"{engine.role} KV cache"] = engine.kv_bytes
    cells["logits, decoder, reserve"] = sum(e.fixed_bytes - e.weights_bytes - e.activation_bytes for e in gpu.engines)
    cells["unused"] = gpu.unused_bytes
    return {label: f"{value / GIB:.2f}" for label, value in cells.items()}
