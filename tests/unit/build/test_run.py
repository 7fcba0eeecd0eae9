"""Whole builds of the tiny pair."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from trt_spec.build.onnx import tools
from trt_spec.build.run import BuildOptions, run_build
from trt_spec.cli.main import main
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec
from trt_spec.util.safetensors_header import load_header, render_header


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    return Workspace(tmp_path / "work")


def build(spec_file, place, **options):
    return run_build(BuildOptions(load_spec(spec_file), place, **options), lambda _text, _fraction: None)[:2]


def left_behind(place):
    return [path for path in place.root.rglob("*") if path.is_file()] if place.root.exists() else []


def test_a_build_makes_both_engines_and_a_manifest_that_reloads(write_spec, place):
    spec_file = write_spec()
    manifest, ran = build(spec_file, place)
    assert ran == ["engine-draft", "engine-target"]
    assert load_manifest(place) == manifest
    assert manifest.spec == load_spec(spec_file)
    for role, max_draft_len in (("target", 4), ("draft", 0)):
        folder = place.engine(role)
        config = json.loads((folder / "config.json").read_text())
        assert config["build_config"]["max_seq_len"] == 64 + 60 + max_draft_len
        assert config["build_config"]["speculative_decoding_mode"] == (2 if max_draft_len else 1)
        assert config["pretrained_config"]["num_key_value_heads"] == 2
        recorded = json.loads((folder / "manifest.json").read_text())
        assert set(recorded["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
        assert recorded["inputs"].keys() >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_n_gram_look_up_builds_one_engine_that_verifies_drafts(tmp_path, tiny_models, place):
    spec_file = tmp_path / "ngram.yaml"
    spec_file.write_text(
        f"name: tiny\nbackend: onnx\ntarget: {{model: {tiny_models}/target}}\n"
        "speculation: {mode: ngram, max_draft_len: 4}\n"
        "limits: {max_batch_size: 4, max_input_len: 64, max_output_len: 60}\n"
    )
    manifest, ran = build(spec_file, place)
    assert ran == ["engine-target"]
    assert not place.engine("draft").exists()
    config = json.loads((place.engine("target") / "config.json").read_text())["build_config"]
    assert (config["speculative_decoding_mode"], config["max_draft_len"]) == (2, 4)
    assert manifest.draft_len_by_running == (4, 3, 3, 2)
    assert load_manifest(place) == manifest


def test_a_second_build_does_nothing(write_spec, place):
    spec_file = write_spec()
    build(spec_file, place)
    stamps = {path: path.stat().st_mtime_ns for path in left_behind(place)}
    _, ran = build(spec_file, place)
    assert ran == []
    assert {path: path.stat().st_mtime_ns for path in left_behind(place)} == stamps
    assert build(spec_file, place, force=True)[1] == ["engine-draft", "engine-target"]


@pytest.mark.parametrize(
    ("replace", "expected"),
    [
        (("draft}", "draft, quantization: int8}"), ["engine-draft"]),
        (("max_draft_len: 4", "max_draft_len: 3"), ["engine-target"]),
        (("max_output_len: 60", "max_output_len: 50"), ["engine-draft", "engine-target"]),
        (("limits:", "serve: {http_port: 9000}\nlimits:"), []),
    ],
)
def test_a_change_builds_what_depends_on_it(write_spec, place, replace, expected):
    build(write_spec(), place)
    assert build(write_spec(replace=replace), place)[1] == expected


def test_a_changed_weight_or_a_damaged_engine_is_built_again(write_spec, place, tmp_path, tiny_models):
    models = tmp_path / "models"
    shutil.copytree(tiny_models, models)
    spec_file = write_spec(models)
    build(spec_file, place)
    weights = models / "draft" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    assert build(spec_file, place)[1] == ["engine-draft"]
    os.truncate(place.engine("target") / "model.onnx.data", 100)
    assert build(spec_file, place)[1] == ["engine-target"]


def test_the_same_model_in_two_precisions_is_a_pair(write_spec, place):
    spec_file = write_spec(replace=("/draft}", "/target, quantization: int8}"))
    build(spec_file, place)
    quantised, full = (place.engine(role) / "model.onnx.data" for role in ("draft", "target"))
    assert quantised.stat().st_size < full.stat().st_size


def test_a_killed_build_goes_on_where_it_was(write_spec, place):
    """SIGKILL while the target engine is being written: the draft's is finished and kept, nothing else remains."""
    spec_file = write_spec()
    code = (
        "import trt_spec.build.onnx.engine as engine, time\n"
        "from trt_spec.cli.main import main\n"
        "write = engine.write_engine\n"
        "def slow(source, params, folder, report):\n"
        "    write(source, params, folder, report)\n"
        "    if params['max_draft_len']: print('now', flush=True); time.sleep(60)\n"
        "engine.write_engine = slow\n"
        f"main(['build', {str(spec_file)!r}, '-o', {str(place.root)!r}])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
    assert not place.manifest.exists()
    assert not place.engine("target").exists()
    assert place.engine("draft").is_dir()
    assert list(place.root.rglob("*.partial"))
    assert build(spec_file, place)[1] == ["engine-target"]
    assert not list(place.root.rglob("*.partial"))


def test_an_interrupt_leaves_nothing_half_written(write_spec, place, monkeypatch):
    def interrupt(_source, _params, folder, _report):
        (folder / "model.onnx").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("trt_spec.build.onnx.engine.write_engine", interrupt)
    result = CliRunner().invoke(main, ["build", str(write_spec()), "-o", str(place.root)])
    assert result.exit_code == 130
    assert left_behind(place) == []


def rewrite_tensors(folder, change):
    """Writes model.safetensors again after ``change(tensors)``, a dict of name -> (dtype, shape, bytes)."""
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    tensors = {
        name: (span.dtype, span.shape, raw[span.begin_bytes : span.end_bytes])
        for name, span in load_header(file).items()
    }
    change(tensors)
    header = render_header([(name, dtype, shape) for name, (dtype, shape, _) in tensors.items()], {})
    file.write_bytes(header + b"".join(data for _, _, data in tensors.values()))


NORM = "model.norm.weight"
FAULTS = {
    "missing tensor": (lambda folder: rewrite_tensors(folder, lambda t: t.pop(NORM)), NORM),
    "unknown tensor": (
        lambda folder: rewrite_tensors(folder, lambda t: t.update({"model.surprise": ("F32", (1,), b"\0" * 4)})),
        r"model\.surprise",
    ),
    "misshapen tensor": (
        lambda folder: rewrite_tensors(folder, lambda t: t.update({NORM: ("F32", (1,), b"\0" * 4)})),
        r"has shape \[1\], config.json promises \[64\]",
    ),
    "truncated weights": (lambda folder: os.truncate(folder / "model.safetensors", 5000), r"model\.safetensors"),
    "missing weights": (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
    "pickled weights": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        r"pytorch_model\.bin",
    ),
    "missing folder": (shutil.rmtree, "does not exist"),
    "unreadable config": (lambda folder: (folder / "config.json").write_text("{"), r"config\.json"),
    "quantised": (
        lambda folder: (folder / "config.json").write_text(
            json.dumps(
                {**json.loads((folder / "config.json").read_text()), "quantization_config": {"quant_method": "awq"}}
            )
        ),
        "already quantised .AWQ",
    ),
    "not a number": (
        lambda folder: rewrite_tensors(folder, lambda t: t.update({NORM: ("BF16", (64,), b"\xc0\x7f" * 64)})),
        rf"{NORM} has values that are no numbers",
    ),
    "another model's tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text(
            (folder / "tokenizer.json").read_text().replace('"id": 319,', '"id": 320,')
        ),
        "has id 320, vocab_size is 320",
    ),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("role", ["draft", "target"])
def test_a_broken_checkpoint_is_named_and_nothing_half_written(write_spec, place, tmp_path, tiny_models, fault, role):
    break_it, words = FAULTS[fault]
    models = tmp_path / "models"
    shutil.copytree(tiny_models, models)
    break_it(models / role)
    result = CliRunner().invoke(main, ["build", str(write_spec(models)), "-o", str(place.root)])
    assert result.exit_code == 2, result.output
    with pytest.raises(SpecError, match=words):
        build(write_spec(models), place)
    assert not place.engine(role).exists()
    assert not place.manifest.exists()
    assert not list(place.root.rglob("*.partial"))


@pytest.mark.parametrize("kept", [None, {"temperature": 0.6, "eos_token_id": None}])
def test_end_ids_survive_without_those_of_a_generation_config(write_spec, place, tmp_path, tiny_models, kept):
    from trt_spec.serve.tokens import TextTokenizer

    models = tmp_path / "models"
    shutil.copytree(tiny_models, models)
    file = models / "target" / "generation_config.json"
    file.unlink() if kept is None else file.write_text(json.dumps(kept))
    config = json.loads((models / "target" / "config.json").read_text())
    (models / "target" / "config.json").write_text(json.dumps({**config, "eos_token_id": 316}))
    build(write_spec(models), place)
    assert TextTokenizer(place.engine("target")).end_ids == (316,)
    assert TextTokenizer(place.engine("draft")).end_ids == (315, 316)


def test_different_vocabularies_are_refused_before_anything_is_built(write_spec, place, tmp_path, tiny, tiny_models):
    models = tmp_path / "models"
    shutil.copytree(tiny_models, models)
    shutil.copyfile(tiny / "pair-other-vocab" / "tokenizer.json", models / "draft" / "tokenizer.json")
    with pytest.raises(SpecError, match=r"token 312 is 'ar' in the target and 'qx' in the draft"):
        build(write_spec(models), place)
    assert left_behind(place) == []


def test_limits_beyond_the_models_context_are_refused(write_spec, place):
    with pytest.raises(SpecError, match=r"sequences of 1064 tokens .* was trained for 512"):
        build(write_spec(replace=("max_output_len: 60", "max_output_len: 1000")), place)


def test_a_backend_without_engines_is_refused_by_name(write_spec, place):
    hardware = ("backend: onnx", "backend: llmapi\nhardware: {gpu: H200, gpus: 1}")
    with pytest.raises(SpecError, match="backend llmapi has no engines to build"):
        build(write_spec(replace=hardware), place)
    assert left_behind(place) == []


def test_a_missing_package_names_the_extra(write_spec, place, monkeypatch):
    monkeypatch.setattr(tools, "PACKAGES", ("numpy", "a-package-that-is-not-there"))
    with pytest.raises(EnvironmentMissing, match=r"a-package-that-is-not-there.*trtspec\[local\]"):
        build(write_spec(), place)


def test_nothing_to_do_takes_no_onnx(write_spec, place):
    spec_file = write_spec()
    build(spec_file, place)
    code = (
        "import sys\n"
        "from trt_spec.cli.main import main\n"
        f"try: main(['build', {str(spec_file)!r}, '-o', {str(place.root)!r}])\n"
        "except SystemExit: print('onnx' in sys.modules)\n"
    )
    started = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n", (result.stderr, time.monotonic() - started)
    assert "Nothing to do" in result.stderr


def test_engines_agree_with_the_checkpoint_they_came_from(write_spec, place, tiny):
    from trt_spec.serve.local_backend.engine import Engine
    from trt_spec.serve.local_backend.feed import Piece

    build(write_spec(), place)
    with np.load(tiny / "pair-target" / "reference.npz") as reference:
        ids, expected = reference["input_ids"][0].tolist(), reference["logits"][0]
    (logits,) = Engine(place.engine("target")).forward([Piece(0, 0, ids, len(ids))])
    np.testing.assert_allclose(logits, expected, atol=1e-4)
