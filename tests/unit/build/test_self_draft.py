"""Whole builds of a draft from the target's own weights."""

import json

import pytest

from trt_spec.build import digests
from trt_spec.build.onnx import tasks
from trt_spec.build.run import BuildOptions, run_build
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec


@pytest.fixture
def place(tmp_path):
    return Workspace(tmp_path / "work")


@pytest.fixture
def build(write_spec, place, tmp_path):
    """build(draft section) -> ids of the steps that ran."""

    def run(draft):
        spec_file = write_spec()
        text = "".join(
            f"draft: {draft}\n" if line.startswith("draft:") else line for line in spec_file.open(encoding="utf-8")
        )
        spec_file.write_text(text)
        options = BuildOptions(load_spec(spec_file), place, cache_dir=tmp_path / "cache")
        return run_build(options, lambda _text, _fraction: None).ran

    return run


def test_the_layers_are_part_of_the_drafts_fingerprint_alone(build, place):
    assert build("{model: self, layers: [0, 2]}") == ["engine-draft", "engine-target"]
    config, recorded = (
        json.loads((place.engine("draft") / name).read_text()) for name in ("config.json", "manifest.json")
    )
    assert config["pretrained_config"]["num_hidden_layers"] == 2
    assert recorded["params"]["layers"] == [0, 2]
    assert build("{model: self, layers: [0, 2]}") == []
    assert build("{model: self, layers: [0, 1]}") == ["engine-draft"]
    assert build("{model: self, layers: [0, 1], quantization: int8}") == ["engine-draft"]
    assert build("{model: self, quantization: int8}") == ["engine-draft"]
    assert load_manifest(place).spec.draft.model == "self"
    assert load_manifest(place).engines["draft"].source == load_manifest(place).engines["target"].source


def test_a_copy_named_by_its_path_is_the_same_engine(build, place, tiny_models):
    build("{model: self, quantization: int8}")
    assert build(f"{{model: {tiny_models}/target, quantization: int8}}") == []


def test_the_checkpoint_is_found_and_read_once(build, monkeypatch):
    found, read = [], []
    load, digest = tasks.load_model_folder, digests.digest_sha256
    monkeypatch.setattr(tasks, "load_model_folder", lambda name, **more: found.append(name) or load(name, **more))
    monkeypatch.setattr(digests, "digest_sha256", lambda file: read.append(file) or digest(file))
    build("{model: self, layers: [1]}")
    assert len(found) == 1
    assert sorted(read) == sorted(set(read))
    assert "model.safetensors" in {file.name for file in read}


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("{model: self, layers: [0, 3]}", "has 3 layers, 0 to 2"),
        ("{model: self, layers: [0, 1, 2]}", "the draft would be the target"),
    ],
)
def test_layers_are_judged_before_anything_is_made(build, place, draft, words):
    with pytest.raises(SpecError, match=words):
        build(draft)
    assert not place.root.exists()
