import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.errors import SpecError
from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.finding import is_refused
from trt_spec.plan.known_models import known_references, load_known_model
from trt_spec.plan.shapes import (
    check_shapes,
    check_stages,
    kv_heads_per_rank,
    layers_per_rank,
    padded_vocab_size,
    valid_tensor_parallel,
)


def facts_of(reference: str) -> ModelFacts:
    return resolve_facts(load_known_model(reference).config, source=reference)


@st.composite
def models(draw):
    kv_heads, head_dim = draw(st.integers(1, 16)), draw(st.sampled_from([2, 16, 64, 128]))
    heads = kv_heads * draw(st.integers(1, 8))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": heads * head_dim,
        "head_dim": head_dim,
        "intermediate_size": draw(st.integers(1, 96)) * draw(st.sampled_from([1, 16, 60])),
        "num_hidden_layers": draw(st.integers(1, 128)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": draw(st.integers(1, 200_000)),
        "max_position_embeddings": 4096,
    }
    return resolve_facts(config, source="drawn")


ranks = st.integers(1, 64)


@given(models(), ranks)
def test_a_size_is_listed_as_valid_just_when_it_is_not_refused(facts, tp):
    refused = is_refused(check_shapes(facts, tp, 1, "target", "tokens"))
    assert (tp in valid_tensor_parallel(facts)) == (not refused)


@given(models(), ranks)
def test_ranks_hold_every_kv_head_equally_often(facts, tp):
    if tp in valid_tensor_parallel(facts):
        copies, rest = divmod(kv_heads_per_rank(facts, tp) * tp, facts.kv_heads)
        assert rest == 0
        assert copies >= 1
        assert (copies > 1) == (tp > facts.kv_heads)


@given(models(), st.integers(1, 64))
def test_every_divisor_of_a_valid_size_is_valid(facts, up_to):
    valid = valid_tensor_parallel(facts, up_to)
    assert valid[0] == 1
    assert max(valid) <= up_to
    for tp in valid:
        divisors = [d for d in range(1, tp + 1) if tp % d == 0 and (facts.kv_heads % d == 0 or d % facts.kv_heads == 0)]
        assert set(divisors) <= set(valid)


@given(st.integers(1, 300_000), ranks)
def test_padding_is_the_least_multiple_that_holds_the_vocabulary(vocab, tp):
    padded = padded_vocab_size(vocab, tp)
    assert padded % tp == 0
    assert vocab <= padded < vocab + tp


@given(st.integers(1, 200), st.integers(1, 64))
def test_layers_are_all_there_and_as_even_as_can_be(layers, pp):
    split = layers_per_rank(layers, pp)
    assert len(split) == pp
    assert sum(split) == layers
    assert sorted(split, reverse=True) == list(split)
    assert max(split) - min(split) <= 1


@given(st.integers(1, 200), st.integers(1, 64))
def test_layers_split_as_torch_tensor_split_does(layers, pp):
    """numpy.array_split has the rule of torch.tensor_split: the first parts are longer."""
    numpy = pytest.importorskip("numpy")
    assert [len(part) for part in numpy.array_split(range(layers), pp)] == list(layers_per_rank(layers, pp))


def test_three_gpus_cannot_split_llama_405b_and_the_message_lists_what_can():
    found = check_shapes(facts_of("meta-llama/Llama-3.1-405B-Instruct"), 3, 1, "target", "tokens")
    assert is_refused(found)
    assert found[0].message == "target.tensor_parallel 3: 128 attention heads do not divide by 3 ranks."
    assert found[0].remedy == "Valid sizes of target.tensor_parallel up to 64: 1, 2, 4, 8, 16, 32, 64."
    assert {finding.code for finding in found} >= {"shape-heads", "shape-kv-heads", "shape-intermediate"}


def test_the_preset_splits():
    facts = facts_of("nvidia/Llama-3.1-405B-Instruct-FP8")
    assert check_shapes(facts, 4, 1, "target", "tokens") == ()
    assert kv_heads_per_rank(facts, 4) == 2


def test_more_pipeline_ranks_than_layers_are_refused_and_an_uneven_split_is_noted():
    facts = facts_of("meta-llama/Llama-3.1-405B-Instruct")
    assert is_refused(check_shapes(facts, 1, 127, "target", "tokens"))
    (note,) = check_shapes(facts, 1, 4, "target", "tokens")
    assert "32 + 32 + 31 + 31" in note.message
    assert layers_per_rank(126, 4) == (32, 32, 31, 31)


def test_an_odd_head_size_is_refused(make_files):
    with pytest.raises(SpecError, match=r"head_dim is 63, .* must be even"):
        resolve_facts(make_files(head_dim=63).config, source="x")


def test_padding_of_logits_is_pointed_out(make_files):
    facts = resolve_facts(make_files(vocab_size=97).config, source="x")
    messages = {a: check_shapes(facts, 2, 1, "target", a)[0].message for a in ("tokens", "logits")}
    assert "logits" not in messages["tokens"]
    assert "width of its logits" in messages["logits"]


@pytest.mark.parametrize("reference", known_references())
def test_every_known_model_fits_on_one_rank_and_gives_its_facts(reference):
    assert check_shapes(facts_of(reference), 1, 1, "target", "tokens") == ()


@pytest.mark.parametrize(
    ("dialect", "pp", "codes"), [("0.17", 4, ["shape-layers-lost"]), ("0.17", 2, []), ("1.3.0rc3", 4, [])]
)
def test_the_old_line_loses_layers_that_do_not_divide(dialect, pp, codes):
    facts = facts_of("meta-llama/Llama-3.1-405B-Instruct")
    assert facts.layers == 126
    assert [finding.code for finding in check_stages(facts, pp, dialect, "target")] == codes
