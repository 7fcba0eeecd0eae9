from dataclasses import replace

import pytest

from trt_spec.deploy.pbtxt import Tensor, render_pbtxt


def _set(repository, model, **values):
    parameters = {**repository.config(model).parameters, **values}
    repository.change(model, parameters={key: value for key, value in parameters.items() if value is not None})


def test_b002_a_folder_of_that_name_with_another_name_inside(nvidia):
    repository = nvidia(has_draft=True)
    repository.edit("tensorrt_llm_draft", 'name: "tensorrt_llm_draft"', 'name: "tensorrt_llm"')
    assert repository.find("model-name").severity == "error"


def test_b002_names_left_as_placeholders_are_told(nvidia):
    repository = nvidia(has_draft=True)
    _set(repository, "tensorrt_llm_bls", tensorrt_llm_draft_model_name="${tensorrt_llm_draft_model_name}")
    unset = [row for row in repository.findings("placeholder-unset") if row.file.startswith("tensorrt_llm_bls")]
    assert "tensorrt_llm_draft_model_name" in unset[0].what
    assert repository.find("draft-unnamed").severity == "warning"


def test_b002_a_placeholder_inside_a_longer_string_is_read_by_nobody_as_unset(nvidia):
    repository = nvidia()
    _set(repository, "preprocessing", add_special_tokens="x${add_special_tokens}")
    finding = repository.find("placeholder")
    assert (finding.severity, finding.file) == ("warning", "preprocessing/config.pbtxt")


def test_b002_placeholders_outside_parameters_are_errors(nvidia):
    repository = nvidia()
    line = repository.edit("tensorrt_llm", 'backend: "tensorrtllm"', 'backend: "${triton_backend}"')
    finding = repository.find("placeholder")
    assert (finding.severity, finding.line) == ("error", line)


def test_what_encodes_pictures_needs_other_paths_for_each_kind_of_model(nvidia):
    repository = nvidia()
    folder = repository.root / "multimodal_encoders"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("# code\n")
    config = replace(
        repository.config("postprocessing"),
        name="multimodal_encoders",
        inputs=(Tensor("pixel_values", "FP16", (-1,)),),
        outputs=(Tensor("OUT_PROMPT_EMBEDDING_TABLE", "FP16", (-1,)),),
        parameters={"visual_model_path": "${visual_model_path}", "hf_model_path": "${hf_model_path}"},
    )
    (folder / "config.pbtxt").write_text(render_pbtxt(config))
    found = [row for row in repository.findings() if row.file.startswith("multimodal_encoders")]
    assert [(row.code, row.severity) for row in found] == [("placeholder-unset", "note")]


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("tensorrt_llm", "gpt_model_path"),
        ("tensorrt_llm", "gpt_model_type"),
        ("preprocessing", "tokenizer_dir"),
        ("postprocessing", "tokenizer_dir"),
    ],
)
def test_what_a_model_does_not_start_without(nvidia, model, key):
    repository = nvidia()
    for value, code in ((f"${{{key}}}", "placeholder"), ("", "parameter-missing"), (None, "parameter-missing")):
        _set(repository, model, **{key: value})
        finding = next(row for row in repository.findings(code) if key in row.what)
        assert (finding.severity, finding.file) == ("error", f"{model}/config.pbtxt")


def test_an_encoder_needs_no_decoder(nvidia):
    repository = nvidia()
    _set(repository, "tensorrt_llm", gpt_model_path="${engine_dir}", encoder_model_path="/engines/encoder")
    assert not [row for row in repository.findings("placeholder", "parameter-missing") if row.severity == "error"]


def test_unknown_parameters_are_named_with_what_was_meant(nvidia):
    repository = nvidia()
    _set(repository, "tensorrt_llm", enable_kv_cache_resue="true", guided_decoding_backend="xgrammar", foo="1")
    repository.options = replace(repository.options, tensorrt_llm="0.18.2")
    found = {finding.what.split()[1]: finding for finding in repository.findings("parameter-unknown")}
    assert found.keys() == {"enable_kv_cache_resue", "guided_decoding_backend", "foo"}
    assert "did you mean enable_kv_cache_reuse?" in found["enable_kv_cache_resue"].what
    assert "0.19.0, 1.3.0rc3 know it" in found["guided_decoding_backend"].what


def test_a_type_of_model_that_the_backend_does_not_know(nvidia):
    repository = nvidia()
    _set(repository, "tensorrt_llm", gpt_model_type="inflight")
    finding = repository.find("parameter-value")
    assert finding.fix is not None
    assert "inflight_fused_batching" in finding.fix.after
