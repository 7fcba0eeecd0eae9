"""A draft from the target's own weights: its files and facts, and what the plan says of it."""

import dataclasses
import json

import numpy as np
import pytest

from trt_spec.build.onnx.quantise import quantise
from trt_spec.errors import SpecError
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.pair import check_pair
from trt_spec.plan.plan import PlanOptions, make_plan
from trt_spec.plan.render import render_json
from trt_spec.plan.self_draft import (
    QUANTISED_ALPHA,
    check_layers,
    guess_acceptance,
    resolve_draft_files,
    step_bytes,
    stored_bits,
)
from trt_spec.plan.steps import WEIGHT_BITS, plan_onnx_steps
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec

HIDDEN = 1024


@pytest.fixture
def self_spec():
    """self_spec(draft section, target=..., speculation=...) -> a spec of backend onnx."""

    def make(draft, target=None, **sections):
        values = {"name": "self", "backend": "onnx", "target": {"model": "owner/big", **(target or {})}}
        limits = {"max_input_len": 1024, "max_output_len": 512}
        return Spec.model_validate({**values, "draft": {"model": "self", **draft}, "limits": limits, **sections})

    return make


@pytest.fixture
def planned(self_spec, make_files, tmp_path):
    """planned(draft section, ...) -> the plan; the target has 4 layers."""

    def plan(draft, config=None, measured_alpha=None, **sections):
        spec = self_spec(draft, **sections)
        files = make_files("owner/big", **(config or {}))
        roles = {"target": files, "draft": files}
        return make_plan(spec, roles, PlanOptions(Workspace(tmp_path), measured_alpha=measured_alpha))

    return plan


def test_the_drafts_files_are_the_targets_with_fewer_layers(self_spec, make_files):
    norms = {f"model.layers.{i}.input_layernorm.weight": (HIDDEN + i,) for i in range(4)}
    target = make_files(
        layer_types=["full_attention"] * 4, tensors={"model.norm.weight": (HIDDEN,), **norms, "model.layers.x": (1,)}
    )
    spec = self_spec({"layers": [0, 3]})
    files = resolve_draft_files(spec, {"target": target, "draft": target})
    draft = files["draft"]
    assert files["target"] is target
    assert draft.config["num_hidden_layers"] == len(draft.config["layer_types"]) == 2
    shapes = {name: tensor.shape for name, tensor in draft.tensors.items()}
    assert shapes == {
        "model.norm.weight": (HIDDEN,),
        "model.layers.x": (1,),
        "model.layers.0.input_layernorm.weight": (HIDDEN,),
        "model.layers.1.input_layernorm.weight": (HIDDEN + 3,),
    }
    assert "2 of its 4 layers" in draft.origin
    assert check_pair(spec, files["target"], draft) == ()


def test_facts_steps_and_cost_are_derived(planned):
    plan = planned({"layers": [0, 3]})
    assert not plan.refused
    assert plan.facts["draft"] == dataclasses.replace(plan.facts["target"], layers=2)
    draft, target = plan.steps
    assert (draft.source, draft.params["layers"]) == ("owner/big", [0, 3])
    assert "layers" not in target.params
    head = 96 * HIDDEN
    layer = (plan.facts["target"].parameters - 2 * head - HIDDEN) / 4
    expected = (head + HIDDEN + 2 * layer) / (head + HIDDEN + 4 * layer)
    assert plan.self_draft.cost_ratio == pytest.approx(expected)
    assert 0.5 < plan.self_draft.cost_ratio < 0.52  # the head is whole in both


def test_the_plan_says_what_is_guessed(planned, codes):
    plan = planned({"quantization": "int8"})
    (finding,) = plan.findings
    assert (finding.code, finding.severity) == ("self-draft-cost", "note")
    assert "4 of the target's 4 layers" in finding.message
    assert "acceptance 0.96 is a guess (0.86 to 0.97)" in finding.message
    document = json.loads(render_json(plan))
    assert document["self_draft"]["acceptance"]["origin"] == "prior"
    assert {"draft.num_layers", "draft.cost_ratio", "draft.acceptance"} <= {
        told["field"] for told in document["explanations"]
    }
    assert codes(planned({"layers": [0, 1]}).findings) == {"self-draft-loses": "warn"}


@pytest.mark.parametrize(
    ("sections", "origin"),
    [({"measured_alpha": 0.5}, "measured"), ({"speculation": {"acceptance": 0.5}}, "spec")],
)
def test_a_known_acceptance_replaces_the_guess(planned, sections, origin):
    plan = planned({"quantization": "int8"}, **sections)
    assert (plan.self_draft.acceptance.alpha, plan.self_draft.acceptance.origin) == (0.5, origin)
    assert "guess" not in plan.findings[0].message


def test_layers_that_the_target_has_not_are_refused(planned):
    plan = planned({"layers": [0, 4]})
    assert plan.refused
    assert plan.steps == ()
    assert "layer 4, but owner/big has 4 layers, 0 to 3" in plan.findings[0].message


def test_all_layers_at_the_same_precision_are_refused(planned):
    assert planned({"layers": [0, 1, 2, 3]}).findings[0].code == "self-draft-is-target"
    assert not planned({"layers": [0, 1, 2, 3], "quantization": "int8"}).refused


def test_a_draft_of_its_own_has_no_such_figures(planned, make_files, tmp_path):
    plan = planned({"model": "owner/small", "quantization": "int8"})
    assert plan.self_draft is None
    assert "self_draft" not in json.loads(render_json(plan))


def test_the_last_layer_alone_is_checked_as_one():
    check_layers([0], 1, "m")
    for layers in ([1], [-1], [0, 7]):
        with pytest.raises(SpecError, match="has 1 layers, 0 to 0"):
            check_layers(layers, 1, "m")


def test_stored_bits_are_those_of_the_packed_weights():
    weight = np.ones((4, 256), np.float32)
    for name, bits in WEIGHT_BITS.items():
        stored = weight.nbytes
        if bits < 32:
            packed = quantise(weight, bits)
            stored = packed.packed.nbytes + packed.scales.nbytes
        assert stored_bits(name) == 8 * stored / weight.size


def test_a_step_reads_tied_embeddings_once_and_untied_ones_as_the_head_alone(make_files):
    tied, untied = (resolve_facts(make_files(tie_word_embeddings=t).config, source="c") for t in (True, False))
    assert step_bytes(tied, "none") == step_bytes(untied, "none") == 4 * tied.parameters
    assert step_bytes(tied, "int4") == pytest.approx(step_bytes(tied, "none") * 5 / 32)


def test_the_guess_falls_with_layers_and_with_bits():
    kept = [guess_acceptance(fraction, "none", "none").alpha for fraction in (0.1, 0.5, 0.7, 0.9, 29 / 30, 1.0)]
    assert kept == sorted(kept)
    assert len(set(kept)) >= 4
    quantised = [guess_acceptance(1.0, "none", name).alpha for name in ("int4", "int8", "none")]
    assert quantised == sorted(quantised)
    assert guess_acceptance(1.0, "none", "int4").alpha == pytest.approx(QUANTISED_ALPHA["int4"])
    assert guess_acceptance(1.0, "int8", "int8").alpha > guess_acceptance(1.0, "none", "int8").alpha - 1e-9
    for guess in (guess_acceptance(0.4, "none", "int4"), guess_acceptance(1.0, "int8", "int4")):
        assert 0 < guess.low <= guess.alpha <= guess.high < 1


def test_a_changed_list_changes_the_step_of_the_draft_alone(self_spec):
    first, second = (plan_onnx_steps(self_spec({"layers": layers})) for layers in ([0, 2], [0, 3]))
    assert first[0].params != second[0].params
    assert first[1] == second[1]
