import shutil
from dataclasses import replace

import pytest

from trt_spec.deploy.pbtxt import EnsembleStep, Tensor
from trt_spec.deploy.repository import ADDED_INPUTS


def _inputs(repository, model, **changes):
    """The inputs of a model with fields of some of them replaced; None leaves one out."""
    rows = []
    for tensor in repository.config(model).inputs:
        change = changes.get(tensor.name, {})
        if change is not None:
            rows.append(replace(tensor, **change))
    return tuple(rows)


@pytest.mark.parametrize(
    ("change", "code", "severity", "words"),
    [
        ({"dtype": "INT64"}, "tensor-dtype", "error", ("INT64", "TYPE_INT32")),
        ({"dims": (2,)}, "tensor-shape", "error", ("[2]", "[-1]")),
        ({"reshape": (1, -1)}, "tensor-shape", "error", ("reshape", "None")),
        ({"optional": False}, "tensor-optional", "warning", ("optional: false",)),
        ({"ragged": False}, "tensor-ragged", "warning", ("allow_ragged_batch",)),
    ],
)
def test_every_property_of_a_tensor_is_compared(nvidia, change, code, severity, words):
    repository = nvidia()
    repository.change("tensorrt_llm", inputs=_inputs(repository, "tensorrt_llm", draft_input_ids=change))
    finding = repository.find(code)
    assert (finding.severity, finding.file) == (severity, "tensorrt_llm/config.pbtxt")
    assert all(word in finding.what for word in ("draft_input_ids", *words))
    rows = repository.file("tensorrt_llm").read_text().split("\n")
    block = "\n".join(rows[finding.line - 4 : finding.line + 1])
    assert "draft_input_ids" in block


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_bls", "ensemble", "preprocessing", "postprocessing"])
def test_all_five_kinds_of_model_are_compared(nvidia, model):
    repository = nvidia()
    first = repository.config(model).inputs[0]
    repository.change(model, inputs=_inputs(repository, model, **{first.name: {"dims": (7, 7)}}))
    assert first.name in repository.findings("tensor-shape")[0].what


def test_missing_tensors_are_named_and_required_ones_are_errors(nvidia):
    repository = nvidia()
    inputs = _inputs(repository, "tensorrt_llm", input_lengths=None, lora_config=None)
    repository.change("tensorrt_llm", inputs=inputs)
    found = {finding.severity: finding.what for finding in repository.findings("tensor-missing")}
    assert "lacks input input_lengths of" in found["error"]
    assert "lacks input lora_config of" in found["warning"]


@pytest.mark.parametrize("kind", ["ours", "theirs"])
@pytest.mark.parametrize(
    ("model", "side", "name"),
    [
        ("tensorrt_llm", "outputs", "output_ids"),
        ("tensorrt_llm_draft", "outputs", "sequence_length"),
        ("tensorrt_llm", "inputs", "draft_input_ids"),
        ("tensorrt_llm_bls", "outputs", "text_output"),
        ("tensorrt_llm_bls", "inputs", "num_draft_tokens"),
    ],
)
def test_what_a_caller_cannot_do_without_is_an_error(request, kind, model, side, name):
    repository = request.getfixturevalue(kind)()
    config = repository.config(model)
    repository.change(model, **{side: tuple(row for row in getattr(config, side) if row.name != name)})
    found = repository.findings("tensor-missing")
    assert [(finding.severity, finding.file) for finding in found] == [("error", f"{model}/config.pbtxt")]
    assert f"lacks {side[:-1]} {name} of" in found[0].what
    assert "such calls fail" in found[0].why


def test_only_nvidias_bls_sends_the_drafts_logits(ours, theirs, request):
    repository = theirs()
    repository.change("tensorrt_llm", inputs=_inputs(repository, "tensorrt_llm", draft_logits=None))
    assert repository.find("tensor-missing").severity == "error"


def test_without_a_caller_nothing_is_needed(nvidia):
    repository = nvidia()
    shutil.rmtree(repository.root / "tensorrt_llm_bls")
    shutil.rmtree(repository.root / "ensemble")
    outputs = tuple(row for row in repository.config("tensorrt_llm").outputs if row.name != "output_ids")
    repository.change("tensorrt_llm", outputs=outputs)
    assert repository.find("tensor-missing").severity == "warning"


def test_an_output_of_ours_that_is_not_declared(ours):
    repository = ours()
    outputs = tuple(row for row in repository.config("ensemble").outputs if row.name != "draft_rounds")
    repository.change("ensemble", outputs=outputs)
    finding = repository.find("tensor-missing")
    assert (finding.severity, "draft_rounds" in finding.what) == ("warning", True)


def test_of_a_version_that_is_only_the_closest_types_and_shapes_are_warnings(nvidia):
    repository = nvidia("0.14.0")
    first = repository.config("tensorrt_llm_bls").inputs[0].name
    change = {first: {"dims": (7, 7), "dtype": "FP64"}}
    repository.change("tensorrt_llm_bls", inputs=_inputs(repository, "tensorrt_llm_bls", **change))
    assert {row.severity for row in repository.findings("tensor-shape", "tensor-dtype")} == {"error"}
    extra = tuple(Tensor(f"OUT_{number}", "FP32", (1,)) for number in range(20))
    repository.change("postprocessing", outputs=(*repository.config("postprocessing").outputs, *extra))
    assert {row.severity for row in repository.findings("tensor-shape", "tensor-dtype")} == {"warning"}
    repository.options = replace(repository.options, tensorrt_llm="0.14.0")
    assert {row.severity for row in repository.findings("tensor-shape", "tensor-dtype")} == {"error"}


def test_an_ensemble_for_pictures_is_not_compared_with_the_one_for_text(nvidia):
    repository = nvidia()
    config = repository.config("ensemble")
    picture = Tensor("image_input", "FP16", (3, -1, -1), optional=True)
    repository.change("ensemble", inputs=(*config.inputs, picture))
    assert repository.find("tensor-unknown").file == "ensemble/config.pbtxt"
    encoder = EnsembleStep("multimodal_encoders", {"IMAGE": "image_input"}, {"OUT_PROMPT_EMBEDDING_TABLE": "table"})
    repository.change("ensemble", steps=(encoder, *config.steps))
    assert repository.findings("tensor-unknown", "tensor-missing") == []


def test_tensors_of_another_version_are_unknown_and_said_to_be(nvidia):
    repository = nvidia("0.18.2")
    extra = Tensor("min_tokens", "INT32", (1,), optional=True, reshape=())
    repository.change("tensorrt_llm", inputs=(*repository.config("tensorrt_llm").inputs, extra))
    repository.options = replace(repository.options, tensorrt_llm="0.18.2")
    finding = repository.find("tensor-unknown")
    assert finding.severity == "warning"
    assert "min_tokens" in finding.what
    assert "1.3.0rc3 has it" in finding.what
    rows = repository.file("tensorrt_llm").read_text().split("\n")
    assert '"min_tokens"' in rows[finding.line - 1]


def test_a_repository_of_one_version_is_no_repository_of_another(nvidia):
    repository = nvidia("0.16.0")
    repository.options = replace(repository.options, tensorrt_llm="1.2.1")
    codes = {finding.code for finding in repository.findings()}
    assert {"tensor-missing", "tensor-unknown"} <= codes
    assert "leave --tensorrt-llm out" in repository.findings("tensor-missing")[0].remedy


def test_logits_of_an_open_type_may_have_any_of_it(nvidia):
    repository = nvidia("0.18.2")
    outputs = repository.config("tensorrt_llm").outputs

    def with_type(dtype):
        return tuple(replace(row, dtype=dtype) if row.name == "generation_logits" else row for row in outputs)

    repository.change("tensorrt_llm", outputs=with_type("FP16"))
    assert not repository.findings("tensor-dtype")
    repository.change("tensorrt_llm", outputs=with_type("INT8"))
    assert "TYPE_FP32 or TYPE_FP16" in repository.find("tensor-dtype").what


def test_our_additions_are_welcome_in_an_orchestrator(nvidia):
    repository = nvidia("0.18.2")
    inputs = repository.config("tensorrt_llm_bls").inputs
    names = {tensor.name for tensor in inputs}
    added = tuple(tensor for tensor in ADDED_INPUTS if tensor.name not in names)
    assert added
    repository.change("tensorrt_llm_bls", inputs=(*inputs, *added))
    assert not repository.findings("tensor-unknown")


def test_the_same_twice_is_a_note_and_a_contradiction_an_error(nvidia):
    repository = nvidia("1.3.0rc3")
    config = repository.config("ensemble")
    repository.change("ensemble", outputs=(*config.outputs, config.outputs[0]))
    assert repository.find("tensor-twice").severity == "note"
    repository.change("ensemble", outputs=(*config.outputs, replace(config.outputs[0], dims=(9,))))
    assert repository.find("tensor-twice").severity == "error"


def test_what_triton_refuses_in_any_model(nvidia):
    repository = nvidia()
    repository.edit("postprocessing", "max_batch_size: 8", "max_batch_size: 0")
    repository.change("postprocessing", inputs=_inputs(repository, "postprocessing", TOKENS_BATCH={"dims": ()}))
    assert "has no dims" in repository.find("tensor-invalid").what
    repository.change("tensorrt_llm", max_batch_size=0)
    assert any("max_batch_size is 0" in finding.what for finding in repository.findings("tensor-invalid"))
