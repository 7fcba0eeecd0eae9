"""`trtspec plan` as a user runs it, offline and without a GPU."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main

ROOT = Path(__file__).parents[3]
PRESETS = ("llama-3.1-405b-h200x4", "llama-3.1-70b-h200x1", "llama-3.1-70b-llmapi-h200x4", "smollm2-cpu")


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def edited(tmp_path):
    """edited(preset, (pattern, text), ...) -> a copy of the preset with each pattern replaced once."""

    def edit(preset, *changes):
        text = (ROOT / "build" / f"{preset}.yaml").read_text()
        for pattern, replacement in changes:
            text, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
            assert count == 1, pattern
        path = tmp_path / "spec.yaml"
        path.write_text(text)
        return path

    return edit


def plan(spec, *options):
    return CliRunner().invoke(main, ["plan", str(spec), *options])


def planned(spec, *options):
    result = plan(spec, "--json", *options)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_plans_offline(preset, tmp_path):
    result = plan(ROOT / "build" / f"{preset}.yaml")
    assert result.exit_code == 0, result.output
    assert "the plan holds" in result.output
    assert list(tmp_path.iterdir()) == []  # writes nothing


def test_the_405b_pair_fits_on_four_h200_with_room_for_a_batch():
    code, document = planned(ROOT / "build" / "llama-3.1-405b-h200x4.yaml")
    assert (code, document["refused"], document["schema"]) == (0, False, 1)
    gpus = document["memory"]["gpus"]
    assert [gpu["total_bytes"] for gpu in gpus] == [143771 * 2**20] * 4
    assert document["memory"]["pools"]["target"]["leftover_tokens"] > 0
    assert [step["id"] for step in document["steps"]] == [
        "fetch-draft",
        "quantize-draft",
        "engine-draft",
        "fetch-target",
        "convert-target",
        "engine-target",
    ]
    assert "--speculative_decoding_mode draft_tokens_external" in document["steps"][-1]["command"]
    assert "TRTLLM_ORCHESTRATOR=1 " in document["launch"]["command"]


def test_405b_in_bf16_is_refused_with_the_number_of_gpus_that_would_do(edited):
    spec = edited(
        "llama-3.1-405b-h200x4",
        (r"nvidia/Llama-3.1-405B-Instruct-FP8", "meta-llama/Llama-3.1-405B-Instruct"),
        (r"quantization: fp8", "quantization: none"),
        (r"kv_cache_dtype: fp8", "kv_cache_dtype: auto"),
    )
    code, document = planned(spec)
    (refusal,) = [finding for finding in document["findings"] if finding["severity"] == "refuse"]
    assert (code, document["refused"], document["steps"]) == (2, True, [])
    assert "use 8 GPUs" in refusal["remedy"]


def test_the_70b_pair_fits_on_one_h200():
    code, document = planned(ROOT / "build" / "llama-3.1-70b-h200x1.yaml")
    assert code == 0
    (gpu,) = document["memory"]["gpus"]
    assert {engine["role"] for engine in gpu["engines"]} == {"target", "draft"}


def test_tensor_parallel_3_is_refused_listing_valid_sizes(edited):
    result = plan(edited("llama-3.1-405b-h200x4", (r"tensor_parallel: 4", "tensor_parallel: 3")))
    assert result.exit_code == 2
    assert "1, 2, 4, 8" in result.output
    assert "REFUSED" in result.output


@pytest.mark.parametrize("quantization", ["fp8_rowwise", "none"])
def test_an_fp8_kv_cache_needs_fp8_weights(edited, quantization):
    result = plan(edited("llama-3.1-405b-h200x4", (r"quantization: fp8", f"quantization: {quantization}")))
    assert result.exit_code == 2
    assert "kv_cache_dtype" in result.output


@pytest.mark.parametrize("preset", PRESETS)
def test_every_derived_value_is_explained(preset):
    spec = ROOT / "build" / f"{preset}.yaml"
    _, document = planned(spec)
    assert document["explanations"]
    for explanation in document["explanations"]:
        result = plan(spec, "--explain", explanation["field"])
        assert result.exit_code == 0
        assert result.stdout.startswith(f"{explanation['field']} = {explanation['value']}\n")
        assert explanation["source"] in result.stdout


def test_an_unknown_field_is_told_the_known_ones():
    result = plan(ROOT / "build" / f"{PRESETS[0]}.yaml", "--explain", "target.max_num_token")
    assert result.exit_code == 2
    assert 'Did you mean "target.max_num_tokens"?' in result.output


def test_a_measured_acceptance_replaces_the_guess(tmp_path, edited):
    report = tmp_path / "report.json"
    report.write_text('{"acceptance": {"alpha": 0.9}}')
    spec = ROOT / "build" / f"{PRESETS[0]}.yaml"
    _, guessed = planned(spec)
    _, measured = planned(spec, "--report", str(report))
    assert guessed["speed"]["acceptance"]["origin"] == "prior"
    assert (measured["speed"]["acceptance"]["origin"], measured["speed"]["acceptance"]["alpha"]) == ("measured", 0.9)
    assert measured["speed"]["batches"][0]["best_speedup"] > guessed["speed"]["batches"][0]["best_speedup"]
    _, stated = planned(edited(PRESETS[0], (r"max_draft_len: 10", "max_draft_len: 10\n  acceptance: 0.8")))
    assert stated["speed"]["acceptance"]["origin"] == "spec"
    report.write_text("{}")
    assert plan(spec, "--report", str(report)).exit_code == 2


def test_a_gpu_hour_price_prices_tokens(edited):
    spec = edited(PRESETS[0], (r"nodes: 1", "nodes: 1, gpu_hour_price: 4.0"))
    _, document = planned(spec)
    row = document["speed"]["batches"][0]
    assert row["best_price_per_million"] < row["plain_price_per_million"]
    assert row["plain_price_per_million"] == pytest.approx(4 * 4.0 * 1e6 / 3600 / row["plain_tokens_per_s"])


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_plot_is_written(tmp_path, suffix):
    path = tmp_path / f"plot.{suffix}"
    assert plan(ROOT / "build" / f"{PRESETS[0]}.yaml", "--plot", str(path)).exit_code == 0
    start = path.read_bytes()[:300]
    assert b"PNG" in start or b"svg" in start
    assert plan(ROOT / "build" / f"{PRESETS[0]}.yaml", "--plot", str(tmp_path / "plot.gif")).exit_code == 2


def test_an_unreachable_hub_names_the_files_to_provide(edited):
    result = plan(edited(PRESETS[0], (r"meta-llama/Llama-3.2-3B-Instruct", "somebody/unknown-model")))
    assert result.exit_code == 3, result.output
    assert "config.json" in result.output
    assert "Traceback" not in result.output


def test_a_pair_of_local_folders_is_checked(write_spec, tiny, tiny_models, tmp_path):
    import shutil

    code, document = planned(write_spec())
    assert (code, document["models"]["target"]["vocab_size"]) == (0, 320)
    models = tmp_path / "models"
    shutil.copytree(tiny_models, models)
    shutil.copyfile(tiny / "pair-other-vocab" / "tokenizer.json", models / "draft" / "tokenizer.json")
    code, document = planned(write_spec(models))
    assert code == 2
    assert "token 312" in document["findings"][0]["message"]


def test_planning_a_preset_loads_nothing_heavy():
    code = (
        "import sys\nfrom trt_spec.cli.main import main\n"
        f"try: main(['plan', {str(ROOT / 'build' / PRESETS[0])!r} + '.yaml', '--json'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "onnx", "onnxruntime", "tritonclient", "grpc", "tokenizers", "huggingface_hub", "matplotlib"}
    assert not heavy & set(result.stderr.split())
