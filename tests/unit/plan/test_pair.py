import dataclasses

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.finding import is_refused
from trt_spec.plan.model_checks import check_model, resolve_eos_ids
from trt_spec.plan.pair import check_pair
from trt_spec.spec.load import load_spec
from trt_spec.spec.presets import load_presets

SMALL = {"num_hidden_layers": 1, "hidden_size": 128, "head_dim": 64, "intermediate_size": 256}


def find(findings, code):
    return next(finding for finding in findings if finding.code == code)


def test_a_sound_pair_has_no_findings(make_spec, make_files):
    assert check_pair(make_spec(), make_files(), make_files(**SMALL)) == ()


@pytest.mark.parametrize("preset", load_presets(), ids=lambda preset: preset.name)
def test_presets_are_not_refused(preset, known, tmp_path, codes):
    path = tmp_path / "spec.yaml"
    path.write_text(preset.text)
    spec = load_spec(path)
    found = check_pair(spec, *(known(model.model) for model in spec.models().values()))
    assert set(codes(found)) <= {"end-id-several"}


def test_other_modes_look_at_the_target_alone(make_spec, make_files, known):
    spec = make_spec(draft=None, speculation={"mode": "none"})
    assert check_pair(spec, make_files(), known("Qwen/Qwen2.5-7B")) == ()


def test_models_of_two_families_are_refused(make_spec, known):
    found = check_pair(make_spec(), known("Qwen/Qwen2.5-72B-Instruct"), known("meta-llama/Llama-3.2-1B-Instruct"))
    assert is_refused(found)
    assert "qwen2.5" in find(found, "pair-token-differs").message
    assert "llama-3" in find(found, "pair-token-differs").message


@pytest.fixture
def llama_tokens():
    special = {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>", 128006: "<|start_header_id|>"}
    return {
        0: "a",
        **special,
        128007: "<|end_header_id|>",
        128009: "<|eot_id|>",
        128255: "<|reserved_special_token_247|>",
    }


@pytest.mark.parametrize("read_role", ["target", "draft"])
def test_a_read_tokenizer_is_compared_with_a_built_in_family_as_far_as_that_goes(
    make_spec, make_files, known, llama_tokens, codes, read_role
):
    builtin = known("meta-llama/Llama-3.1-8B-Instruct")

    def verdict(tokens):
        read = make_files(tokens=tokens, vocab_size=128256, **(SMALL if read_role == "draft" else {}))
        pair = (read, builtin) if read_role == "target" else (builtin, read)
        return codes(check_pair(make_spec(), *pair))

    assert verdict(llama_tokens)["pair-tokenizer-unread"] == "warn"
    assert verdict({**llama_tokens, 128009: "x"})["pair-token-differs"] == "refuse"
    shorter = {i: token for i, token in llama_tokens.items() if i != 128255}
    assert verdict(shorter)["pair-token-differs"] == "refuse"


def test_a_missing_tokenizer_is_refused(make_spec, make_files):
    bare = dataclasses.replace(make_files(**SMALL), tokenizer={})
    found = check_pair(make_spec(), make_files(), bare)
    assert find(found, "files-no-tokenizer").role == "draft"
    assert is_refused(found)


def test_a_tokenizer_that_cannot_be_read_raises(make_spec, make_files):
    broken = dataclasses.replace(make_files(**SMALL), tokenizer={"model": {"vocab": 3}})
    with pytest.raises(SpecError, match=r"tokenizer\.json of owner/model cannot be read"):
        check_pair(make_spec(), make_files(), broken)


def test_merges_are_compared_by_content(make_spec, make_files, codes):
    def verdict(ours, theirs):
        return codes(check_pair(make_spec(), make_files(merges=ours), make_files(merges=theirs, **SMALL)))

    assert verdict(["a b", "c d"], [["a", "b"], ["c", "d"]]) == {}
    assert verdict(["a b", "c d"], ["a b"]) == {"pair-merges-differ": "warn"}
    found = check_pair(make_spec(), make_files(merges=["a b", "c d"]), make_files(merges=["a b", "c e"], **SMALL))
    assert "from merge 1 on" in found[0].message


def test_special_tokens_are_compared(make_spec, make_files):
    added = [{"id": 7, "content": "t7", "special": True}]
    found = check_pair(
        make_spec(), make_files(added=added), make_files(added=[{**added[0], "special": False}], **SMALL)
    )
    assert [(f.code, f.severity) for f in found] == [("pair-special-differs", "warn")]
    assert "Token 7 is special in the target only" in found[0].message


def test_end_ids_come_from_generation_config_first(make_files):
    assert resolve_eos_ids(make_files(eos_token_id=2)) == (2,)
    assert resolve_eos_ids(make_files(eos_token_id=2, generation_config={"eos_token_id": [3, 4]})) == (3, 4)
    assert resolve_eos_ids(make_files(eos_token_id=2, generation_config={"eos_token_id": []})) == (2,)
    assert resolve_eos_ids(make_files(eos_token_id=None)) == ()


@pytest.mark.parametrize("eos_token", ["</s>", {"content": "</s>", "special": True}])
def test_end_ids_come_from_tokenizer_config_last(make_files, eos_token):
    added = [{"id": 1, "content": "<s>"}, {"id": 3, "content": "</s>"}]
    files = {"added": added, "tokenizer_config": {"eos_token": eos_token}}
    assert resolve_eos_ids(make_files(eos_token_id=None, **files)) == (3,)
    assert resolve_eos_ids(make_files(eos_token_id=2, **files)) == (2,)


def test_several_end_ids_become_one_and_stop_words(make_spec, make_files):
    ids = {"eos_token_id": [9, 5, 6]}
    found = check_pair(make_spec(), make_files(**ids), make_files(**SMALL, **ids))
    assert [(f.code, f.severity) for f in found] == [("end-id-several", "note")]
    assert "9 is end_id, 5, 6 stop words" in found[0].message


@pytest.mark.parametrize(("ours", "theirs", "severity"), [([2, 3], [3], "note"), ([2], [3], "warn")])
def test_end_ids_that_differ(make_spec, make_files, codes, ours, theirs, severity):
    found = check_pair(make_spec(), make_files(eos_token_id=ours), make_files(eos_token_id=theirs, **SMALL))
    assert codes(found)["pair-end-ids-differ"] == severity


@pytest.mark.parametrize(
    ("eos", "code"), [(None, "end-id-missing"), (96, "end-id-outside"), (["</s>"], "end-id-outside")]
)
def test_end_ids_that_cannot_be(make_spec, make_files, codes, eos, code):
    found = check_model(make_spec(), "target", make_files(eos_token_id=eos))
    assert codes(found) == {code: "warn" if eos is None else "refuse"}


@pytest.mark.parametrize(
    ("draft", "message"), [("other", "templates of target and draft differ"), (None, "The draft has no chat template")]
)
def test_chat_templates_are_compared(make_spec, make_files, draft, message):
    settings = {"tokenizer_class": "X", "chat_template": "{{ messages }}"}
    ours = make_files(tokenizer_config=settings)
    assert check_pair(make_spec(), ours, make_files(tokenizer_config=settings, **SMALL)) == ()
    theirs = make_files(tokenizer_config={**settings, "chat_template": draft}, **SMALL)
    (found,) = check_pair(make_spec(), ours, theirs)
    assert (found.code, found.severity) == ("pair-chat-template", "warn")
    assert message in found.message


def test_a_named_default_template_is_the_same_as_a_plain_one(make_spec, make_files):
    named = [{"name": "default", "template": "{{ messages }}\n"}]
    ours = make_files(tokenizer_config={"chat_template": "{{ messages }}"})
    assert check_pair(make_spec(), ours, make_files(tokenizer_config={"chat_template": named}, **SMALL)) == ()


@pytest.mark.parametrize("name", ["self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj"])
def test_a_config_that_describes_other_weights_is_refused(make_spec, make_files, name):
    tensors = {f"model.layers.0.{name}.weight": (640, 1024)}
    (found,) = check_model(make_spec(), "target", make_files(tensors=tensors))
    assert (found.code, found.severity) == ("files-tensor-shape", "refuse")
    assert "[640, 1024]" in found.message


def test_weights_that_fit_their_config_pass(make_spec, make_files):
    tensors = {
        "model.embed_tokens.weight": (96, 1024),
        "lm_head.weight": (96, 1024),
        "model.layers.0.self_attn.q_proj.weight": (1024, 1024),
        "model.layers.0.self_attn.k_proj.weight": (512, 1024),
        "model.layers.0.mlp.gate_proj.weight": (2048, 1024),
    }
    assert check_model(make_spec(), "target", make_files(tensors=tensors)) == ()


def test_a_target_of_shorter_context_is_refused(make_spec, make_files):
    (found,) = check_model(make_spec(), "target", make_files(max_position_embeddings=1535))
    assert (found.code, found.role) == ("context-too-short", "target")
    assert check_model(make_spec(), "target", make_files(max_position_embeddings=1536)) == ()


@pytest.mark.parametrize(("quantization", "warns"), [("none", True), ("fp8", False)])
def test_the_same_model_as_draft_gains_only_when_quantised_lower(make_spec, make_files, codes, quantization, warns):
    spec = make_spec(target={"model": "owner/one"}, draft={"model": "owner/one", "quantization": quantization})
    assert codes(check_pair(spec, make_files(), make_files())) == ({"pair-same-model": "warn"} if warns else {})


def test_a_draft_half_as_dear_as_the_target_is_warned_of(make_spec, make_files):
    (found,) = check_pair(make_spec(), make_files(), make_files(num_hidden_layers=3))
    assert (found.code, found.severity) == ("pair-draft-dear", "warn")
    assert "0.75 of the target's bytes" in found.message
    quantised = make_spec(target={"quantization": "fp8"})
    (found,) = check_pair(quantised, make_files(), make_files(num_hidden_layers=2))
    assert "1.01 of the target's bytes" in found.message


def test_an_unsupported_architecture_raises(make_spec, make_files):
    with pytest.raises(SpecError, match=r"config\.json of owner/model.*LlamaForCausalLM, Qwen2ForCausalLM"):
        check_model(make_spec(), "target", make_files(architectures=["GPT2LMHeadModel"]))
