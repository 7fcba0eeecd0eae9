import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.hardware import Gpu
from trt_spec.plan.roofline import CONSTANTS, Constants, ServedModel, served_model, step_cost, step_time_s
from trt_spec.spec.model import Model

CONFIGS = json.loads((Path(__file__).parents[2] / "fixtures" / "speed" / "llama_configs.json").read_text())
FACTS = {name: resolve_facts(config, source=name) for name, config in CONFIGS.items()}
GPU = Gpu(
    name="test",
    memory_bytes=100 * 10**9,
    bandwidth_bytes_per_s=4e12,
    bf16_flops=1e15,
    fp8_flops=2e15,
    link_bytes_per_s=900e9,
    sm="90",
    trust="made up",
)
IDEAL = Constants(efficiency=1.0, launch_s=0.0, all_reduce_s=0.0, link_fraction=1.0, round_overhead_s=0.0)

names = st.sampled_from(sorted(FACTS))
batches = st.integers(1, 4096)
tokens = st.integers(1, 65)
contexts = st.integers(0, 131072)
parallel = st.sampled_from([1, 2, 4, 8, 16])


def model(name="Llama 3.1 70B", **changes):
    return ServedModel(FACTS[name], **changes)


def test_the_published_configs_have_the_published_sizes():
    """The shapes of the fixture, by the parameter counts on the model cards."""
    counts = {name: round(facts.parameters / 1e9, 2) for name, facts in FACTS.items()}
    assert counts == {
        "Llama 3.1 405B": 405.85,
        "Llama 3.1 70B": 70.55,
        "Llama 3.3 70B": 70.55,
        "Llama 3.1 8B": 8.03,
        "Llama 3.2 3B": 3.21,
        "Llama 3.2 1B": 1.24,
    }


def test_bytes_read_are_those_of_the_weights_and_the_cache():
    facts = FACTS["Llama 3.1 70B"]
    head = facts.vocab_size * facts.hidden_size
    norms = (2 * facts.layers + 1) * facts.hidden_size
    layers = facts.parameters - 2 * head - norms
    assert step_cost(model(), GPU, 1, 1, 0).bytes_read == 2 * (layers + head)
    assert step_cost(model(quantization="fp8"), GPU, 1, 1, 0).bytes_read == layers + 2 * head
    assert step_cost(model(quantization="int4"), GPU, 1, 1, 0).bytes_read == layers / 2 + 2 * head
    tied = FACTS["Llama 3.2 1B"]
    tied_norms = (2 * tied.layers + 1) * tied.hidden_size
    assert step_cost(ServedModel(tied), GPU, 1, 1, 0).bytes_read == 2 * (tied.parameters - tied_norms)


def test_kv_bytes_per_token():
    # 2 * 80 layers * 8 heads * 128 * 2 bytes
    assert model().kv_bytes_per_token == 327_680
    assert model(kv_cache_dtype="fp8").kv_bytes_per_token == 163_840
    assert model(tensor_parallel=4).kv_bytes_per_token == 81_920
    # A rank cannot hold less than one key/value head.
    assert model(tensor_parallel=16).kv_bytes_per_token == model(tensor_parallel=8).kv_bytes_per_token == 40_960
    cost = step_cost(model(), GPU, 3, 1, 1000)
    assert cost.bytes_read - step_cost(model(), GPU, 3, 1, 0).bytes_read == 3 * 1000 * 327_680


def test_a_small_batch_waits_for_memory_and_a_large_one_for_arithmetic():
    small, large = step_cost(model(), GPU, 1, 1, 0, IDEAL), step_cost(model(), GPU, 4096, 1, 0, IDEAL)
    assert small.total_s == pytest.approx(small.bytes_read / 4e12)
    assert large.total_s == pytest.approx(large.flops / 1e15)
    assert small.flops == pytest.approx(2 * small.bytes_read / 2, rel=1e-3)


def test_fp8_weights_are_multiplied_at_the_fp8_rate_where_there_is_one():
    old = dataclasses.replace(GPU, fp8_flops=0.0)
    fp8 = model(quantization="fp8")
    assert step_cost(fp8, old, 4096, 1, 0).compute_s == step_cost(model(), old, 4096, 1, 0).compute_s
    assert step_cost(fp8, GPU, 4096, 1, 0).compute_s < 0.6 * step_cost(model(), GPU, 4096, 1, 0).compute_s


def test_splitting_costs_two_all_reduces_a_layer():
    cost = step_cost(model(tensor_parallel=4), GPU, 2, 3, 0)
    message = 2 * 3 * 8192 * 2
    once = CONSTANTS.all_reduce_s + 2 * 3 / 4 * message / (900e9 * CONSTANTS.link_fraction)
    assert cost.communication_s == pytest.approx(2 * 80 * once)
    assert step_cost(model(), GPU, 2, 3, 0).communication_s == 0.0
    assert 0.0 < step_cost(model(pipeline_parallel=2), GPU, 2, 3, 0).communication_s < 2e-5


@given(names, batches, batches, tokens, tokens, contexts, contexts, parallel)
def test_time_never_falls_with_batch_tokens_or_context(name, b1, b2, t1, t2, c1, c2, ranks):
    (b1, b2), (t1, t2), (c1, c2) = sorted((b1, b2)), sorted((t1, t2)), sorted((c1, c2))
    served = model(name, tensor_parallel=ranks)
    assert 0.0 < step_time_s(served, GPU, b1, t1, c1) <= step_time_s(served, GPU, b2, t2, c2)


@given(names, batches, tokens, contexts, parallel, parallel)
def test_splitting_never_adds_work_to_a_gpu_and_never_saves_communication(name, batch, new, context, tp1, tp2):
    tp1, tp2 = sorted((tp1, tp2))
    few, many = (step_cost(model(name, tensor_parallel=tp), GPU, batch, new, context) for tp in (tp1, tp2))
    assert many.bytes_read <= few.bytes_read
    assert many.flops <= few.flops
    assert many.memory_s <= few.memory_s
    assert many.compute_s <= few.compute_s
    assert many.communication_s >= few.communication_s


@given(names, batches, tokens, contexts, parallel)
def test_time_never_falls_with_bytes(name, batch, new, context, ranks):
    def time(**changes):
        return step_time_s(model(name, tensor_parallel=ranks, **changes), GPU, batch, new, context)

    assert time(quantization="fp8", kv_cache_dtype="fp8") <= time(quantization="fp8") <= time()
    assert time(quantization="int4") <= time(quantization="int8") <= time() <= time(dtype="float32")


@given(names, batches, tokens, contexts)
def test_a_faster_gpu_is_never_slower(name, batch, new, context):
    faster = dataclasses.replace(GPU, bandwidth_bytes_per_s=8e12, bf16_flops=2e15, fp8_flops=4e15)
    assert step_time_s(model(name), faster, batch, new, context) <= step_time_s(model(name), GPU, batch, new, context)


def test_a_spec_section_becomes_an_engine():
    section = Model(model="m", quantization="fp8", kv_cache_dtype="fp8", tensor_parallel=4, dtype="float16")
    assert served_model(section, FACTS["Llama 3.1 405B"]) == ServedModel(
        FACTS["Llama 3.1 405B"], "fp8", "fp8", "float16", 4, 1
    )
