from dataclasses import replace

import pytest

from trt_spec.deploy.pbtxt import Tensor


def _steps(repository, name, **changes):
    return tuple(
        replace(step, **changes) if step.model_name == name else step for step in repository.config("ensemble").steps
    )


def _without(mapping, key):
    return {name: value for name, value in mapping.items() if name != key}


@pytest.fixture
def repository(nvidia):
    return nvidia("0.18.2")


def step_of(repository, name):
    return next(step for step in repository.config("ensemble").steps if step.model_name == name)


def test_a_step_whose_model_is_not_there(repository):
    line = repository.edit("ensemble", 'model_name: "postprocessing"', 'model_name: "post"')
    finding = repository.find("model-not-found")
    assert 'step model "post" not found' in finding.what
    assert finding.line == line


def test_a_required_input_that_is_not_fed(repository):
    step = step_of(repository, "tensorrt_llm")
    repository.change(
        "ensemble", steps=_steps(repository, "tensorrt_llm", input_map=_without(step.input_map, "input_lengths"))
    )
    whats = [finding.what for finding in repository.findings("ensemble-map")]
    assert any("lacks input_lengths, which tensorrt_llm needs" in what for what in whats)


def test_a_map_that_names_a_tensor_nobody_declares(repository):
    step = step_of(repository, "tensorrt_llm")
    changed = {**_without(step.input_map, "runtime_top_k"), "top_kk": step.input_map["runtime_top_k"]}
    repository.change("ensemble", steps=_steps(repository, "tensorrt_llm", input_map=changed))
    finding = repository.find("ensemble-map")
    assert "names top_kk, which tensorrt_llm does not declare" in finding.what
    rows = repository.file("ensemble").read_text().split("\n")
    assert any("top_kk" in row for row in rows[finding.line - 2 : finding.line])


def test_outputs_that_no_step_writes_and_inputs_that_none_reads(repository):
    config = repository.config("ensemble")
    extra = Tensor("extra", "INT32", (1,))
    repository.change(
        "ensemble", inputs=(*config.inputs, extra), outputs=(*config.outputs, replace(extra, name="more"))
    )
    whats = [finding.what for finding in repository.findings("ensemble-map")]
    assert any("input extra is used by no step" in what for what in whats)
    assert any("output more is written by no step" in what for what in whats)


def test_dangling_ends_inside(repository):
    step = step_of(repository, "postprocessing")
    repository.change(
        "ensemble", steps=_steps(repository, "postprocessing", input_map={**step.input_map, "TOKENS_BATCH": "_NOTHING"})
    )
    whats = [finding.what for finding in repository.findings("ensemble-map")]
    assert any("mapped to _NOTHING, which nothing writes" in what for what in whats)
    assert any("mapped to _TOKENS_BATCH, which nothing reads" in what for what in whats)


def test_a_tensor_written_twice(repository):
    step = step_of(repository, "postprocessing")
    repository.change("ensemble", steps=(*repository.config("ensemble").steps, step))
    assert any("written by more than one step" in finding.what for finding in repository.findings("ensemble-map"))


def test_types_through_the_maps(repository):
    config = repository.config("ensemble")
    inputs = tuple(replace(row, dtype="INT64") if row.name == "top_k" else row for row in config.inputs)
    repository.change("ensemble", inputs=inputs)
    assert "top_k is TYPE_INT64 here and TYPE_INT32 as runtime_top_k" in repository.find("ensemble-map").what


def test_no_steps_and_instances(repository):
    text = repository.file("ensemble").read_text()
    start = text.index("ensemble_scheduling")
    repository.file("ensemble").write_text(text[:start] + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    whats = [finding.what for finding in repository.findings("ensemble-map")]
    assert whats == ["ensemble: it has an instance_group", "ensemble: it has no step"] or set(whats) == {
        "ensemble: it has an instance_group",
        "ensemble: it has no step",
    }


def test_a_step_that_does_not_parse_is_not_blamed_twice(repository):
    repository.edit("preprocessing", "max_batch_size: 8", "max_batch_size: ${x}")
    assert not repository.findings("ensemble-map")
