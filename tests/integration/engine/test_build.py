"""Whole builds for backend engine, on stand-ins for NVIDIA's tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.deploy.built_engines import check_built_engines
from trt_spec.plan.manifest import load_manifest
from trt_spec.spec.load import load_spec

STEPS = ["convert-draft", "engine-draft", "convert-target", "engine-target"]
FP8 = {"quantization": "fp8", "kv_cache_dtype": "fp8"}


def ran(result) -> list[str]:
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith(("Built ", "Nothing to do"))]
    return [] if line.startswith("Nothing") else line.removeprefix("Built ").rstrip(".").split(", ")


def test_a_native_build_makes_both_engines_and_tells_how(machine, version):
    machine.install_tensorrt_llm(version)
    spec = machine.write_spec(version)
    assert ran(machine.build(spec)) == STEPS
    manifest = load_manifest(machine.workspace)
    assert manifest.spec == load_spec(spec)
    assert {role: entry.max_draft_len for role, entry in manifest.engines.items()} == {"target": 4, "draft": 0}
    for entry in manifest.engines.values():
        assert entry.kv_cache_tokens > 0
        assert entry.logits_dtype == "float32"
    for role, ranks, mode in (("target", 2, 2), ("draft", 1, 1)):
        folder = machine.workspace.engine(role)
        config = json.loads((folder / "config.json").read_text())
        assert config["version"] == version
        assert config["build_config"]["speculative_decoding_mode"] == mode
        assert config["build_config"]["kv_cache_type"] == ("PAGED" if version.startswith("0.") else "paged")
        assert len(list(folder.glob("rank*.engine"))) == ranks
        assert (folder / "tokenizer.json").is_file() and (folder / "generation_config.json").is_file()
        record = machine.record(role)
        assert record["toolchain"]["runtime"] == "native" and record["toolchain"]["container"] is None
        assert record["toolchain"]["tensorrt_llm"] == version
        assert record["argv"][0] == "trtllm-build"
        assert {gpu["name"] for gpu in record["gpus"]} == {"NVIDIA H200"}
        assert record["tools"]["compute_capability"] == "9.0"
        assert record["peak_memory_bytes"] > 2**20 and record["command_s"] > 0
        assert set(record["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
        assert "Total time of building" in Path(record["log"]).read_text()
        assert manifest.engines[role].built_with.tensorrt_llm == version
    check_built_engines(manifest, machine.workspace)  # what deploy and serve ask of it
    assert machine.hidden() == []


def test_a_build_in_the_container_mounts_what_it_needs_and_no_more(container, version):
    assert ran(container.build(container.write_spec(version))) == STEPS
    runs = {
        call["argv"][-1].split("/")[-2].split(".")[1]: call["argv"]
        for call in container.calls("docker")
        if call["argv"][0] == "run"
    }
    root = str(container.workspace.root)
    for role, gpus, shm in (("target", '"device=0,1"', "2g"), ("draft", '"device=2"', "2g")):
        words = runs[role]
        options = words[: next(i for i, word in enumerate(words) if word.startswith("nvcr.io/"))]
        given = [(options[i], options[i + 1]) for i in range(len(options) - 1) if options[i].startswith("--")]
        assert ("--gpus", gpus) in given and ("--shm-size", shm) in given
        assert ("--ulimit", "memlock=-1") in given and ("--ulimit", "stack=67108864") in given
        assert ("--user", f"{os.getuid()}:{os.getgid()}") in given
        assert [value for name, value in given if name == "--volume"] == [f"{root}:{root}"]
        assert any(value.startswith("trtspec.workspace=") for name, value in given if name == "--label")
        record = container.record(role)
        assert record["toolchain"]["container"] == words[len(options)]
        assert record["toolchain"]["runtime"] == "docker"
        assert record["peak_memory_bytes"] is None  # only the client is seen
    assert container.hidden() == []


def test_the_container_reads_local_models_and_the_workspace(container, version):
    """Quantising reads the model's own folder, which lies outside the workspace."""
    spec = container.write_spec(version, target=FP8, draft=FP8)
    steps = [step.replace("convert", "quantize") for step in STEPS]
    assert ran(container.build(spec)) == steps
    (call, *_) = [
        call for call in container.calls("docker") if "/app/examples/quantization/quantize.py" in call["argv"]
    ]
    volumes = [word for before, word in zip(call["argv"], call["argv"][1:], strict=False) if before == "--volume"]
    draft = container.models / "draft"
    assert f"{draft}:{draft}:ro" in volumes
    assert container.record("target")["findings"] == []
    config = json.loads((container.workspace.engine("target") / "config.json").read_text())
    assert config["build_config"]["plugin_config"]["use_fp8_context_fmha"] is True


def test_a_second_build_asks_no_program(native):
    spec = native.write_spec()
    native.build(spec)
    native.forget_calls()
    stamps = {path: path.stat().st_mtime_ns for path in native.workspace.root.rglob("*")}
    assert ran(native.build(spec)) == []
    assert native.calls() == []
    assert {path: path.stat().st_mtime_ns for path in native.workspace.root.rglob("*")} == stamps
    assert ran(native.build(spec, "--force")) == STEPS


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"speculation": {"max_draft_len": 3}}, ["engine-target"]),
        ({"serve": {"http_port": 9000}}, []),
        ({"speculation": {"adaptive": False}}, []),
        ({"limits": {"max_output_len": 50}}, ["engine-draft", "engine-target"]),
        ({"draft": {"dtype": "float16"}}, ["convert-draft", "engine-draft"]),
        ({"build_flags": {"draft": {"reduce_fusion": True}}}, ["engine-draft"]),
        ({"build_flags": {"draft": {"workers": 1, "log_level": "debug"}}}, []),
    ],
)
def test_a_change_makes_what_depends_on_it(native, sections, expected):
    native.build(native.write_spec())
    assert ran(native.build(native.write_spec(**sections))) == expected


@pytest.mark.parametrize("length", [1, 3, 9, 60])
def test_the_drafts_limits_do_not_depend_on_the_draft_length(native, length):
    native.build(native.write_spec())
    before = native.record("draft")["argv"]
    native.build(native.write_spec(speculation={"max_draft_len": length}))
    assert native.record("draft")["argv"] == before


def test_a_damaged_engine_is_made_again(native):
    spec = native.write_spec()
    native.build(spec)
    (native.workspace.engine("draft") / "rank0.engine").write_bytes(b"cut")
    result = native.build(spec)
    assert ran(result) == ["engine-draft"]
    assert "draft: rank0.engine is truncated (3 bytes, manifest" in result.stderr


def test_until_convert_needs_no_gpu_and_no_toolchain(machine):
    machine.set(gpus="none")
    assert ran(machine.build(machine.write_spec(), "--until", "convert")) == ["convert-draft", "convert-target"]
    assert machine.calls() == []
    assert not machine.workspace.manifest.exists()


def test_discarded_checkpoints_are_not_missed(native):
    spec = native.write_spec()
    assert ran(native.build(spec, "--discard-checkpoint")) == STEPS
    assert not list(native.workspace.root.glob("checkpoints/*"))
    assert ran(native.build(spec)) == []
    spec = native.write_spec(speculation={"max_draft_len": 2})
    assert ran(native.build(spec, "--discard-checkpoint")) == ["convert-target", "engine-target"]


def intervals(machine, program="trtllm-build"):
    return sorted(call["at"] for call in machine.calls(program))


def test_engines_on_other_gpus_are_built_side_by_side(native):
    """The draft's GPU is none of the target's: both builds are there before either has ended."""
    native.set(delay_s="1")
    native.build(native.write_spec())
    first, second = intervals(native)
    assert second - first < 1.0
    native.forget_calls()
    native.build(native.write_spec(draft={"gpus": [0]}), "--force")
    first, second = intervals(native)
    assert second - first >= 1.0


def test_a_release_between_profiles_names_what_is_borrowed(container):
    spec = container.write_spec("1.1.0")
    refused = container.build(spec)
    assert refused.exit_code == 2 and "--accept-derived" in refused.output
    shown = container.build(spec, "--accept-derived", "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "not recorded: flags of trtllm-build" in shown.stdout
    assert "26.02-trtllm-python-py3" in shown.stdout


@pytest.mark.parametrize("version", ["1.3.0rc21", "1.4.0rc1"])
def test_newer_versions_have_no_engines(machine, version):
    result = machine.build(machine.write_spec(version))
    assert result.exit_code == 2
    assert "removed in 1.3.0rc21" in result.output and "backend: llmapi" in result.output


def test_a_dry_run_writes_nothing_and_shows_the_commands(container):
    result = container.build(container.write_spec(), "--dry-run")
    assert result.exit_code == 0, result.output
    assert "engine-target: GPU 0, 1, RAM" in result.stdout
    assert "docker run --rm --init" in result.stdout and "--max_draft_len 4" in result.stdout
    assert "trust of flags: near-verified copy of 1.3.0rc3" in result.stdout
    assert not container.workspace.root.exists()
    assert container.calls() == []


def test_a_dry_run_as_json(container):
    document = json.loads(container.build(container.write_spec(), "--dry-run", "--json").stdout)
    assert [step["id"] for step in document["steps"]] == STEPS
    full = document["peak_disk_bytes"]
    less = json.loads(container.build(container.write_spec(), "--dry-run", "--json", "--discard-checkpoint").stdout)
    assert less["peak_disk_bytes"] < full


def test_the_preset_is_shown_without_a_network(container):
    result = container.build("build/llama-3.1-405b-h200x4.yaml", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "hf download nvidia/Llama-3.1-405B-Instruct-FP8" in result.stdout
    assert "quantize-draft: GPU 0, 1, 2, 3" in result.stdout


def test_json_tells_what_ran_and_what_was_reported(native):
    native.set(fault="target:build_config.max_num_tokens=9999")
    document = json.loads(native.build(native.write_spec(), "--json").stdout)
    assert document["ran"] == STEPS
    assert [finding["code"] for finding in document["findings"]] == ["engine-max-num-tokens"]
    assert document["manifest"]["engines"]["target"]["built_with"]["gpu"] == "NVIDIA H200"


def test_a_second_build_waits_and_says_so(native):
    native.set(delay_s="2")
    spec = native.write_spec()
    first = native.start(spec)
    deadline = time.monotonic() + 60
    while not native.calls("trtllm-build") and time.monotonic() < deadline:
        time.sleep(0.05)
    told: list[str] = []
    result = run_build(BuildOptions(load_spec(spec), native.workspace), lambda text, _fraction: told.append(text))
    assert first.wait(60) == 0
    first.stdout.close()
    assert f"waiting for another build in {native.workspace.root}" in told
    assert result.ran == []
    assert len(native.calls("trtllm-build")) == 2


def test_a_build_in_a_thread_leaves_signals_alone(native):
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run_build(BuildOptions(load_spec(native.write_spec()), native.workspace), lambda _text, _fraction: None)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []


def test_nothing_to_do_loads_nothing_heavy(native):
    spec = native.write_spec()
    native.build(spec)
    code = (
        "import sys\n"
        "from trt_spec.cli.main import main\n"
        f"try: main(['build', {str(spec)!r}, '-o', {str(native.workspace.root)!r}])\n"
        "except SystemExit: print({'torch', 'onnx', 'huggingface_hub', 'tritonclient'} & set(sys.modules))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n", result.stderr
    assert "Nothing to do" in result.stderr
