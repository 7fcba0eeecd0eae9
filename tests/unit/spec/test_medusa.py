"""Trees of guesses, and what a spec for Medusa heads must say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.errors import SpecError
from trt_spec.spec.faults import judge_values
from trt_spec.spec.load import load_spec
from trt_spec.spec.medusa import (
    MAX_GUESS,
    MAX_NODES,
    MC_SIM_7B_63,
    default_choices,
    depth_of,
    judge_choices,
    resolve_choices,
)
from trt_spec.spec.model import Spec
from trt_spec.spec.rules import render_path

PATHS = st.lists(st.integers(0, MAX_GUESS), min_size=1, max_size=5).map(tuple)


def closed(paths):
    """All beginnings of the paths."""
    return {path[:end] for path in paths for end in range(1, len(path) + 1)}


def values(**speculation):
    return {
        "name": "heads",
        "backend": "engine",
        "hardware": {"gpu": "H200", "gpus": 4},
        "target": {"model": "owner/big", "tensor_parallel": 2},
        "speculation": {"mode": "medusa", "heads": "owner/heads", **speculation},
    }


def faults_of(values):
    return {render_path(fault.path): fault.message for fault in judge_values(values)[1]}


@given(st.sets(PATHS, min_size=1, max_size=8), st.randoms())
def test_every_set_of_paths_with_its_beginnings_is_a_tree_in_any_order(paths, random):
    nodes = list(closed(paths))[:]
    random.shuffle(nodes)
    fault = judge_choices(nodes)
    assert fault is None if len(nodes) <= MAX_NODES else "at most 64" in fault


@given(st.sets(PATHS, min_size=1, max_size=6), st.data())
def test_taking_away_a_parent_is_seen(paths, data):
    nodes = closed(paths)
    parents = sorted({path[:-1] for path in nodes if len(path) > 1})
    if not parents or len(nodes) > MAX_NODES:
        return
    gone = data.draw(st.sampled_from(parents))
    assert f"without its parent {list(gone)}" in judge_choices(sorted(nodes - {gone}))


@given(st.sets(PATHS, min_size=1, max_size=6), st.data())
def test_a_node_twice_is_seen(paths, data):
    nodes = sorted(closed(paths))
    again = data.draw(st.sampled_from(nodes))
    assert "twice" in judge_choices([*nodes, again])


@given(st.integers(1, 8), st.integers(1, MAX_NODES))
@settings(max_examples=200)
def test_the_default_tree_is_one_for_any_heads_and_any_length(heads, length):
    choices = default_choices(heads, length)
    assert judge_choices(choices) is None
    assert depth_of(choices) <= heads and len(choices) <= length
    assert len(choices) == length or len(choices) == sum(len(path) <= heads for path in MC_SIM_7B_63)


def test_the_default_tree_is_that_of_its_authors():
    assert len(MC_SIM_7B_63) == 63
    assert depth_of(MC_SIM_7B_63) == 4
    # Guesses of each head that it asks for: FasterDecoding/Medusa's mc_sim_7b_63 and TensorRT-LLM's medusaModule.h.
    tops = [1 + max(path[depth] for path in MC_SIM_7B_63 if len(path) == depth + 1) for depth in range(4)]
    assert tops == [10, 10, 10, 2]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([], "no node"),
        ([[]], "empty path"),
        ([[0], [0, 16], [0, 0]], "from 0 to 15"),
        ([[0] * depth for depth in range(1, 18)], "17 guesses"),
        ([[0, 0]], "without its parent [0]"),
        ([[0], [0]], "twice"),
    ],
)
def test_what_is_no_tree_is_refused_in_the_file(choices, words):
    assert words in faults_of(values(choices=choices))["speculation.choices"]


def test_a_tree_larger_than_the_draft_length_is_refused():
    told = faults_of(values(choices=[[0], [1], [2]], max_draft_len=2))
    assert "found 3 nodes, expected at most max_draft_len 2" in told["speculation.choices"]


def test_the_draft_length_is_that_of_the_tree_unless_it_is_given():
    assert Spec.model_validate(values()).speculation.max_draft_len == 63
    assert Spec.model_validate(values(choices=[[0], [1], [1, 0]])).speculation.max_draft_len == 3
    assert Spec.model_validate(values(max_draft_len=15)).speculation.max_draft_len == 15
    assert Spec.model_validate({**values(), "speculation": {"mode": "none"}}).speculation.max_draft_len == 4


def test_a_spec_reloads_to_itself():
    spec = Spec.model_validate(values(choices=[[0], [0, 1]], head_accuracies=[[0.6, 0.7], [0.4]]))
    assert Spec.model_validate_json(spec.model_dump_json()) == spec


def test_the_tree_that_is_deployed():
    spec = Spec.model_validate(values(max_draft_len=5))
    assert resolve_choices(spec.speculation, 1) == ((0,), (1,), (2,), (3,), (4,))
    own = Spec.model_validate(values(choices=[[0], [0, 1]]))
    assert resolve_choices(own.speculation, 4) == ((0,), (0, 1))


@pytest.mark.parametrize(
    ("section", "changes", "path", "words"),
    [
        ("speculation", {"acceptance": 0.8}, "speculation.acceptance", "head_accuracies"),
        ("speculation", {"accept": "logits"}, "speculation.accept", "expects tokens"),
        ("speculation", {"head_accuracies": [[0.5, 0.4]]}, "speculation.head_accuracies", "rising shares"),
        ("speculation", {"heads": "pypi:heads"}, "speculation.heads", "owner/name or a folder"),
        ("speculation", {"mode": "none"}, "speculation.heads", "mode none has none"),
        ("target", {"pipeline_parallel": 2}, "target.pipeline_parallel", "expects 1"),
        ("target", {"dtype": "float32"}, "target.dtype", "float16 or bfloat16"),
        ("target", {"quantization": "fp8"}, "target.quantization", "leave speculation.heads out"),
        ("target", {"quantization": "fp8_rowwise"}, "target.quantization", "ModelOpt checkpoint with its heads"),
    ],
)
def test_each_rule_alone(section, changes, path, words):
    changed = values()
    changed[section] = {**changed[section], **changes}
    told = faults_of(changed)
    assert list(told) == [path] and words in told[path]


@pytest.mark.parametrize("backend", ["onnx", "llmapi"])
def test_other_backends_are_refused_with_the_way_out(backend):
    changed = {**values(), "backend": backend, "target": {"model": "owner/big"}}
    assert "set `backend: engine`" in faults_of(changed)["speculation.mode"]


def test_no_draft_section():
    assert "mode medusa uses none" in faults_of({**values(), "draft": {"model": "owner/small"}})["draft"]


def test_a_fault_elsewhere_brings_no_fault_of_the_tree():
    told = faults_of({**values(choices=[[0], [1], [2], [3], [4], [5]]), "name": "/"})
    assert list(told) == ["name"]


def test_heads_count_from_the_spec_file(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: heads\nbackend: engine\nhardware: {gpu: H200, gpus: 4}\ntarget: {model: owner/big}\n"
        "speculation: {mode: medusa, heads: ./heads, choices: [[0], [0, 0]]}\n"
    )
    assert load_spec(path).speculation.heads == str(tmp_path / "heads")
    path.write_text(path.read_text().replace("./heads", "~nobody-at-all/heads"))
    with pytest.raises(SpecError, match="a user that has a home folder"):
        load_spec(path)
