import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoints"


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_convert_then_check(tmp_path):
    output = tmp_path / "out"
    result = run("convert", GOLDEN / "hf" / "llama", "-o", output, "--tp", 2, "--tensorrt-llm", "1.3.0rc3")
    assert result.exit_code == 0, result.output
    assert "2 ranks" in result.output
    recorded = GOLDEN / "trtllm-1.3.0rc3" / "llama-tp2pp1" / "rank1.safetensors"
    assert (output / "rank1.safetensors").read_bytes() == recorded.read_bytes()
    checked = run("check", output)
    assert checked.exit_code == 0
    assert "every byte as written" in checked.output
    with (output / "rank0.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    damaged = run("check", output)
    assert damaged.exit_code == 4
    assert "rank0.safetensors is not the file that was written" in damaged.output


def test_events_are_json_lines_on_stdout(tmp_path):
    command = [sys.executable, "-m", "trt_spec", "convert", str(GOLDEN / "hf" / "qwen2"), "-o", str(tmp_path / "out")]
    done = subprocess.run([*command, "--kv-cache-dtype", "fp8", "--json"], capture_output=True, text=True, check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events[:-1]] == ["progress"] * (len(events) - 1)
    assert events[-2]["done_bytes"] == events[-2]["total_bytes"] == events[-1]["total_bytes"]
    assert events[-1]["event"] == "finished"
    assert events[-1]["warnings"]


@pytest.mark.parametrize("flags", [("--tp", 3), ("--quantization", "int4"), ("--tensorrt-llm", "0.9")])
def test_refusals_are_one_paragraph(tmp_path, flags):
    result = run("convert", GOLDEN / "hf" / "llama", "-o", tmp_path / "out", *flags)
    assert result.exit_code == 2
    assert result.output.startswith("trtspec: ")
    assert len(result.output.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_hub_id_gets_its_download_command(tmp_path):
    result = run("convert", "meta-llama/Llama-3.1-8B", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "hf download meta-llama/Llama-3.1-8B" in result.output


@pytest.mark.parametrize("precision", [{}, {"quantization": "fp8", "kv_cache_dtype": "fp8", "tensor_parallel": 2}])
def test_the_command_that_plan_prints_is_understood(tmp_path, precision):
    from trt_spec.plan.facts import resolve_facts
    from trt_spec.plan.toolchain import load_profile
    from trt_spec.plan.trtllm_argv import convert_argv
    from trt_spec.spec.model import Model

    folder = GOLDEN / "hf" / ("llama-modelopt-fp8" if precision else "llama")
    facts = resolve_facts(json.loads((folder / "config.json").read_text()), source="model")
    model = Model.model_validate({"model": str(folder), **precision})
    argv = convert_argv(model, facts, load_profile("1.2.1"), str(folder), tmp_path / "out")
    assert argv[0] == "trtspec"
    assert run(*argv[1:]).exit_code == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["mapping"]["tp_size"] == model.tensor_parallel


def test_converting_imports_no_heavy_package(tmp_path):
    """torch and tensorrt_llm are not installed for tests; what may not be imported either is the other heavy ones."""
    code = (
        "import sys\nfrom trt_spec.cli.main import main\n"
        f"try: main(['convert', {str(GOLDEN / 'hf' / 'llama')!r}, '-o', {str(tmp_path / 'out')!r}])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (tmp_path / "out" / "rank0.safetensors").is_file()
    heavy = {"torch", "tensorrt_llm", "transformers", "ml_dtypes", "onnx", "onnxruntime", "tritonclient", "gguf"}
    assert not heavy & set(done.stdout.split())
