from __future__ import annotations

import json

import pytest

from trt_spec.deploy.dialect import DIALECT_DIR, RECORDED_VERSIONS, load_dialect, settle_logits
from trt_spec.deploy.pbtxt import Tensor
from trt_spec.errors import SpecError


@pytest.mark.parametrize(
    ("version", "model", "inputs", "outputs"),
    [
        ("0.17.0", "tensorrt_llm", 53, 12),
        ("0.17.0", "tensorrt_llm_bls", 38, 10),
        ("0.17.0", "ensemble", 32, 10),
        ("0.18.2", "tensorrt_llm", 53, 12),
        ("0.18.2", "tensorrt_llm_bls", 38, 10),
        ("0.18.2", "ensemble", 32, 10),
        ("1.2.1", "tensorrt_llm", 62, 21),
        ("1.2.1", "tensorrt_llm_bls", 43, 19),
        ("1.2.1", "ensemble", 36, 19),  # NVIDIA's template declares kv_cache_alloc_total_blocks twice
    ],
)
def test_tensor_counts_are_those_of_nvidias_templates(version: str, model: str, inputs: int, outputs: int) -> None:
    recorded = load_dialect(version).models[model]
    assert (len(recorded.inputs), len(recorded.outputs)) == (inputs, outputs)


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_no_name_twice_and_no_type_left_open(version: str) -> None:
    for model in load_dialect(version).models.values():
        for tensors in (model.inputs, model.outputs):
            names = [tensor.name for tensor in tensors]
            assert len(set(names)) == len(names)
            assert {tensor.dtype for tensor in tensors} <= {
                "BOOL", "FP16", "FP32", "INT32", "INT64", "STRING", "UINT8", "UINT64",
            }  # fmt: skip


@pytest.mark.parametrize("file", sorted(DIALECT_DIR.glob("*.json")), ids=lambda file: file.stem)
def test_every_data_file_is_offered_and_says_where_it_comes_from(file: object) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))  # type: ignore[attr-defined]
    assert document["tensorrt_llm"] in RECORDED_VERSIONS
    assert document["provenance"] and document["trust"]


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_ensembles_name_tensors_of_their_steps(version: str) -> None:
    models = load_dialect(version).models
    assert [step["model_name"] for step in models["ensemble"].steps] == [
        "preprocessing", "tensorrt_llm", "postprocessing",
    ]  # fmt: skip
    for step in models["ensemble"].steps:
        model = models[step["model_name"]]
        assert step["input_map"].keys() <= {tensor.name for tensor in model.inputs}
        assert step["output_map"].keys() <= {tensor.name for tensor in model.outputs}


def test_open_types_are_settled() -> None:
    assert load_dialect("1.2.1").models["ensemble"].open_dtypes == {
        "context_logits": "logits_datatype",
        "generation_logits": "logits_datatype",
    }
    assert not load_dialect("0.16.0").models["ensemble"].open_dtypes
    engine = {tensor.name: tensor for tensor in load_dialect("1.2.1").models["tensorrt_llm"].inputs}
    assert engine["draft_logits"] == Tensor("draft_logits", "FP32", (-1, -1), optional=True, ragged=True)
    assert engine["encoder_input_features"].dtype == "FP16"
    assert engine["prompt_embedding_table"].dtype == "FP16"
    assert engine["input_lengths"] == Tensor("input_lengths", "INT32", (1,), reshape=())


def test_renamed_inputs() -> None:
    old = {tensor.name for tensor in load_dialect("0.18.2").models["tensorrt_llm"].inputs}
    new = {tensor.name for tensor in load_dialect("1.2.1").models["tensorrt_llm"].inputs}
    assert {"random_seed", "min_length"} <= old - new
    assert {"seed", "min_tokens"} <= new - old


def test_a_version_that_was_not_recorded_says_so() -> None:
    recorded, derived = load_dialect("1.3.0rc3"), load_dialect("1.2.1")
    assert derived.recorded == "1.3.0rc3"
    assert derived.tensorrt_llm == "1.2.1"
    assert "derived for 1.2.1 from 1.3.0rc3" in derived.trust
    assert "derived" not in recorded.trust
    assert load_dialect("0.17.0.post1").recorded == "0.17.0"
    assert load_dialect("0.18.0").recorded == "0.18.2"
    assert load_dialect("0.21.0").recorded == "0.19.0"


@pytest.mark.parametrize("version", ["0.13.0", "0.1.0", "2.0.0", "latest", ""])
def test_a_version_without_templates_is_refused(version: str) -> None:
    with pytest.raises(SpecError, match=r"1\.3\.0rc3"):
        load_dialect(version)


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_logits_have_the_type_of_the_engines_where_the_template_leaves_it_open(version: str) -> None:
    dialect = load_dialect(version)
    assert settle_logits(dialect, "FP32") == dialect
    if version in ("0.14.0", "0.15.0", "0.16.0"):
        with pytest.raises(SpecError, match="FP32 only"):
            settle_logits(dialect, "FP16")
        return
    settled = settle_logits(dialect, "FP16").models
    changed = {
        (name, tensor.name)
        for name, model in settled.items()
        for tensor, before in zip(
            (*model.inputs, *model.outputs), (*dialect.models[name].inputs, *dialect.models[name].outputs), strict=True
        )
        if tensor != before
    }
    assert ("tensorrt_llm", "draft_logits") in changed
    assert {name for _, name in changed} == {"draft_logits", "context_logits", "generation_logits"}
    assert {name for name, _ in changed} >= {"tensorrt_llm", "tensorrt_llm_bls", "ensemble"}
