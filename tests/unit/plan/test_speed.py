import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.plan.acceptance_model import expected_tokens
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.hardware import Gpu
from trt_spec.plan.priors import Acceptance
from trt_spec.plan.roofline import ServedModel, step_time_s
from trt_spec.plan.speed import (
    SpeedInputs,
    batch_sizes,
    judge_speed,
    predict,
    resolve_speed_inputs,
    round_time_s,
)
from trt_spec.spec.model import Draft, Hardware, Limits, Model, Spec, Speculation

CONFIGS = json.loads((Path(__file__).parents[2] / "fixtures" / "speed" / "llama_configs.json").read_text())
FACTS = {name: resolve_facts(config, source=name) for name, config in CONFIGS.items()}
GPU = Gpu(
    name="test",
    memory_bytes=100 * 10**9,
    bandwidth_bytes_per_s=4.8e12,
    bf16_flops=990e12,
    fp8_flops=1979e12,
    link_bytes_per_s=900e9,
    sm="90",
    trust="made up",
)


def acceptance(alpha, low=None, high=None):
    return Acceptance(alpha, alpha if low is None else low, alpha if high is None else high, "spec", "")


def inputs(alpha=0.8, **changes):
    values = {
        "target": ServedModel(FACTS["Llama 3.1 70B"], "fp8", "fp8"),
        "draft": ServedModel(FACTS["Llama 3.2 1B"], "fp8", "fp8"),
        "gpu": GPU,
        "gpus": 2,
        "acceptance": acceptance(alpha),
        "max_draft_len": 10,
        "max_batch_size": 1,
        "context_tokens": 1024,
    }
    return SpeedInputs(**{**values, **changes})


def test_the_table_has_the_best_length_at_every_number_of_requests():
    prediction = predict(inputs(0.6, max_batch_size=64))
    table = prediction.draft_len_by_running
    for batch, best in prediction.draft_len_by_batch.items():
        assert table[min(batch, len(table)) - 1] == best
    assert len(set(table)) > 1  # it changes with the load, or the test says nothing
    assert len(predict(inputs(0.6, max_batch_size=3)).draft_len_by_running) <= 3


def test_batch_sizes_are_the_powers_of_two_and_the_largest():
    assert batch_sizes(1) == (1,)
    assert batch_sizes(8) == (1, 2, 4, 8)
    assert batch_sizes(12) == (1, 2, 4, 8, 12)


def test_a_round_is_drafting_verifying_and_overhead():
    given_ = inputs(tail_tokens=16)

    def step(model, new):
        return step_time_s(model, GPU, 64, new, 1024)

    assert round_time_s(given_, 64, 0) == step(given_.target, 1)
    assert round_time_s(given_, 64, 4) == pytest.approx(
        step(given_.draft, 17) + 3 * step(given_.draft, 1) + step(given_.target, 21) + given_.constants.round_overhead_s
    )
    free = inputs(draft=None)
    assert round_time_s(free, 64, 4) == pytest.approx(step(free.target, 5) + free.constants.round_overhead_s)


def test_an_engine_that_takes_three_sequences_at_once_needs_four_passes_for_ten():
    given_ = inputs(target_batch=3, draft=None)
    verify_3, verify_1 = (step_time_s(given_.target, GPU, batch, 5, 1024) for batch in (3, 1))
    assert round_time_s(given_, 10, 4) == pytest.approx(3 * verify_3 + verify_1 + given_.constants.round_overhead_s)
    assert round_time_s(given_, 10, 4) > round_time_s(inputs(draft=None), 10, 4)
    assert round_time_s(given_, 10, 0) == round_time_s(inputs(), 10, 0)
    # Not even one fits: still one at a time, the limits are another module's verdict.
    assert round_time_s(inputs(target_batch=0), 2, 4) == round_time_s(inputs(target_batch=1), 2, 4)
    assert round_time_s(inputs(draft_batch=1), 2, 4) > round_time_s(inputs(), 2, 4)


def test_the_prediction_by_hand():
    prediction = predict(inputs(alpha=0.8, gpu_hour_price=3.0))
    (row,) = prediction.batches
    plain_s = round_time_s(inputs(), 1, 0)
    gains = [expected_tokens(0.8, g) * plain_s / round_time_s(inputs(), 1, g) for g in range(11)]
    assert list(row.speedup) == pytest.approx(gains)
    assert row.speedup[0] == 1.0
    assert (row.best_speedup, row.best_draft_len) == (max(row.speedup), gains.index(max(gains)))
    assert row.plain_tokens_per_s == pytest.approx(1 / plain_s)
    assert row.best_tokens_per_s == pytest.approx(max(gains) / plain_s)
    # Two GPUs at 3 an hour.
    assert row.plain_price_per_million == pytest.approx(6.0 * plain_s / 3600 * 1e6)
    assert row.best_price_per_million == pytest.approx(row.plain_price_per_million / max(gains))
    assert predict(inputs()).batches[0].best_price_per_million is None
    assert prediction.expected_tokens == tuple(expected_tokens(0.8, g) for g in range(11))
    assert prediction.draft_len_by_batch == {1: row.best_draft_len}


def test_bounds_of_the_acceptance_bound_the_gain():
    row = predict(inputs(acceptance=acceptance(0.75, 0.6, 0.9))).batches[0]
    assert row.best_low < row.best_speedup < row.best_high
    assert row.best_low == pytest.approx(predict(inputs(alpha=0.6)).batches[0].speedup[row.best_draft_len])


@given(st.floats(0.0, 1.0), st.sampled_from(["Llama 3.2 1B", "Llama 3.2 3B", "Llama 3.1 8B"]), st.integers(1, 100))
def test_break_even_separates_gain_from_loss(alpha, draft, batch):
    given_ = inputs(alpha, draft=ServedModel(FACTS[draft], "fp8", "fp8"), max_batch_size=batch)
    row = predict(given_).batches[-1]
    assert row.batch == batch
    pays = max(row.speedup[1:]) > 1.0
    if row.break_even_alpha is None or alpha < row.break_even_alpha - 1e-9:
        assert not pays
        assert row.best_draft_len == 0
    elif alpha > row.break_even_alpha + 1e-9:
        assert pays
        assert row.best_draft_len > 0


@given(st.floats(0.0, 1.0), st.integers(1, 64), st.integers(0, 32), st.none() | st.integers(1, 64))
def test_the_best_length_is_the_greatest_of_all_even_with_stepped_costs(alpha, batch, tail, at_once):
    given_ = inputs(alpha, max_batch_size=batch, tail_tokens=tail, target_batch=at_once, draft_batch=at_once)
    for row in predict(given_).batches:
        assert row.speedup[row.best_draft_len] == max(row.speedup) == row.best_speedup >= 1.0
        assert max(row.speedup) not in row.speedup[: row.best_draft_len]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 256))
def test_a_better_acceptance_is_never_slower(one, other, batch):
    low, high = (predict(inputs(alpha, max_batch_size=batch)) for alpha in sorted((one, other)))
    for worse, better in zip(low.batches, high.batches, strict=True):
        assert all(w <= b for w, b in zip(worse.speedup, better.speedup, strict=True))


@given(st.floats(0.0, 0.95), st.integers(0, 10))
def test_a_batch_bound_by_arithmetic_gains_nothing(alpha, longest):
    row = predict(inputs(alpha, max_batch_size=4096, max_draft_len=longest, context_tokens=16)).batches[-1]
    assert row.best_draft_len == 0
    assert row.best_speedup == 1.0
    assert all(gain < 1.0 for gain in row.speedup[1:])


def test_the_gain_sinks_with_the_batch():
    """TensorRT-LLM's README of this pair: 2.x at batch 1, 1.x at batch 16."""
    prediction = predict(inputs(alpha=0.75, max_batch_size=4096, tail_tokens=16))
    gains = [row.best_speedup for row in prediction.batches]
    assert gains == sorted(gains, reverse=True)
    assert 2.0 <= gains[0] < 3.0
    assert 1.0 < prediction.batches[4].best_speedup < 2.0
    assert prediction.draft_len_by_batch[4096] == 0


def test_findings_say_where_it_does_not_pay():
    assert judge_speed(predict(inputs(alpha=0.8))) == ()
    assert judge_speed(predict(inputs(alpha=0.1, max_draft_len=0))) == ()
    (never,) = judge_speed(predict(inputs(alpha=0.05, max_batch_size=4)))
    assert (never.code, never.severity) == ("speed-never-pays", "warn")
    assert "0.05 (spec)" in never.message
    slow = ServedModel(FACTS["Llama 3.1 405B"])
    (hopeless,) = judge_speed(predict(inputs(alpha=1.0, draft=slow)))
    assert "no acceptance is enough" in hopeless.message
    (some,) = judge_speed(predict(inputs(alpha=0.75, max_batch_size=1000)))
    assert (some.code, some.severity) == ("speed-loses-at-batch", "note")
    losing = [
        n for n, length in predict(inputs(alpha=0.75, max_batch_size=1000)).draft_len_by_batch.items() if not length
    ]
    assert 1000 in losing
    assert ", ".join(map(str, losing)) in some.message


def test_a_prediction_is_plain_data():
    prediction = predict(inputs(alpha=0.8, max_batch_size=4))
    document = json.loads(json.dumps(dataclasses.asdict(prediction)))
    assert [row["batch"] for row in document["batches"]] == [1, 2, 4]
    assert document["acceptance"]["origin"] == "spec"


def spec(**changes):
    values = {
        "name": "s",
        "backend": "engine",
        "hardware": Hardware(gpu="H200", gpus=4),
        "target": Model(model="t/t", quantization="fp8", tensor_parallel=4),
        "draft": Draft(model="d/d"),
        "limits": Limits(max_batch_size=4, max_input_len=1000, max_output_len=100),
    }
    return Spec(**{**values, **changes})


def test_inputs_come_from_the_spec():
    facts = {"target": FACTS["Llama 3.1 405B"], "draft": FACTS["Llama 3.2 3B"]}
    found = resolve_speed_inputs(
        spec(), facts, GPU, acceptance(0.8), tail_tokens=16, target_batch=2, gpu_hour_price=1.0
    )
    assert found.target == ServedModel(facts["target"], "fp8", tensor_parallel=4)
    assert found.draft == ServedModel(facts["draft"])
    assert (found.gpus, found.max_draft_len, found.max_batch_size, found.context_tokens) == (4, 4, 4, 1050)
    assert (found.tail_tokens, found.target_batch, found.draft_batch, found.gpu_hour_price) == (16, 2, None, 1.0)
    alone = spec(draft=None, speculation=Speculation(mode="none"))
    found = resolve_speed_inputs(alone, {"target": facts["target"]}, GPU, acceptance(0.8))
    assert (found.draft, found.max_draft_len) == (None, 0)
    assert [row.speedup for row in predict(found).batches] == [(1.0,)] * 3
