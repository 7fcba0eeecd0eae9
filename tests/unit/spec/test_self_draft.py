"""Drafts that are made from the target's own weights: what a spec may ask for, and every rule broken once."""

from __future__ import annotations

import pytest

from trt_spec.spec.faults import judge_values
from trt_spec.spec.load import load_spec
from trt_spec.spec.model import Spec
from trt_spec.spec.model_rules import QUANTIZATIONS
from trt_spec.spec.rules import render_path
from trt_spec.spec.self_draft import FINEST_FIRST, judge_self_draft

SOUND = [
    # quantization of the target, draft section
    ("none", {"quantization": "int8"}),
    ("none", {"quantization": "int4"}),
    ("int8", {"quantization": "int4"}),
    ("none", {"layers": [0, 2, 3]}),
    ("none", {"layers": [1], "quantization": "int8"}),
    ("int4", {"layers": [0], "quantization": "int4"}),
]
BROKEN = [
    # backend, quantization of the target, draft section, path of the fault, words of the message
    ("onnx", "none", {}, "draft.quantization", "expected layers to keep, or quantization int8 or int4"),
    ("onnx", "int8", {"quantization": "int8"}, "draft.quantization", "or quantization int4: otherwise"),
    ("onnx", "int4", {"quantization": "int4"}, "draft.quantization", "expected layers to keep: otherwise the draft is"),
    ("onnx", "int8", {"layers": [0]}, "draft.quantization", "found none, expected int8 or int4"),
    ("onnx", "int4", {"quantization": "int8"}, "draft.quantization", "expected int4: a draft finer than its target"),
    ("onnx", "none", {"quantization": "fp8"}, "draft.quantization", "backend onnx expects none, int8 or int4"),
    ("onnx", "none", {"layers": []}, "draft.layers", "at least 1 item"),
    ("onnx", "none", {"layers": [0, 0]}, "draft.layers", "found 0 after 0, expected rising"),
    ("onnx", "none", {"layers": [0, 3, 2]}, "draft.layers", "found 2 after 3"),
    ("onnx", "none", {"layers": [-1, 3]}, "draft.layers[0]", "at least 0"),
    ("onnx", "none", {"layers": [0, 1.5]}, "draft.layers[1]", "a whole number"),
    ("onnx", "none", {"layers": [0, True]}, "draft.layers[1]", "a whole number"),
    ("onnx", "none", {"layers": 12}, "draft.layers", "expected a list"),
    ("onnx", "none", {"quantization": "int8", "revision": "main"}, "draft.revision", "is the target's"),
    ("onnx", "none", {"model": "./other", "layers": [0]}, "draft.layers", "expected `model: self`"),
    ("engine", "none", {"quantization": "fp8"}, "draft.model", "{model: owner/big, quantization: fp8}"),
    ("engine", "none", {"layers": [0]}, "draft.model", "save a checkpoint that has only those"),
    ("llmapi", "none", {"layers": [0]}, "draft.model", "{mode: ngram}"),
]


def self_values(values: dict, quantization: str, draft: dict) -> dict:
    sizes = {key: 1 for key in ("tensor_parallel",) if key in values["target"]}
    values["target"] = {"model": values["target"]["model"], "quantization": quantization, **sizes}
    values["draft"] = {"model": "self", **draft}
    return values


@pytest.mark.parametrize(("quantization", "draft"), SOUND)
def test_a_smaller_copy_of_the_target_is_a_draft(values_of, quantization, draft):
    spec = Spec.model_validate(self_values(values_of("onnx"), quantization, draft))
    assert spec.draft.is_self
    model = spec.models()["draft"]
    assert (model.model, model.quantization) == (spec.target.model, draft.get("quantization", "none"))
    assert model.layers == (tuple(draft["layers"]) if "layers" in draft else None)
    assert Spec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(("backend", "quantization", "draft", "path", "words"), BROKEN)
def test_every_rule_says_what_would_do(values_of, backend, quantization, draft, path, words):
    spec, faults = judge_values(self_values(values_of(backend), quantization, draft))
    assert spec is None
    assert words in next(fault.message for fault in faults if render_path(fault.path) == path)


def test_a_target_is_not_made_from_itself(onnx_values):
    onnx_values["target"] = {"model": "self", "layers": [0]}
    _, faults = judge_values(onnx_values)
    messages = {render_path(fault.path): fault.message for fault in faults}
    assert "only a draft" in messages["target.model"]
    assert "belongs under draft" in messages["target.layers"]


def test_other_drafts_are_no_business_of_these_rules(sound_values):
    spec = Spec.model_validate(sound_values)
    assert not spec.draft.is_self
    assert list(judge_self_draft(spec, spec.draft)) == []
    assert spec.models()["draft"] == spec.draft


def test_the_order_of_quantisations_is_that_of_the_backend():
    assert QUANTIZATIONS["onnx"] == FINEST_FIRST


def test_a_relative_target_is_the_drafts_too(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\nbackend: onnx\ntarget: {model: ./m}\ndraft: {model: self, layers: [0, 2]}\n")
    spec = load_spec(path)
    assert spec.models()["draft"].model == spec.target.model == str(tmp_path / "m")
    assert spec.draft.model == "self"


def test_a_fault_is_found_on_its_line(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\nbackend: onnx\ntarget: {model: ./m}\ndraft:\n  model: self\n  layers: [3, 1]\n")
    with pytest.raises(Exception, match=r"spec.yaml:6: draft.layers: found 1 after 3"):
        load_spec(path)
