"""Builds that go wrong: what is said, what is left, and that the next one goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Fault of the stand-in: what the user reads.
FAULTS = {
    "crash": "RuntimeError: internal error in builder",
    "killed": "killed, likely by the host for lack of memory: the step needs about",
    "killed-in-container": "killed, likely by the host for lack of memory",
    "disk-full": "The disk is full.",
    "cuda-oom": "GPU memory ran out.",
    "sm-mismatch": "architecture does not fit",
    "plugin": "A TensorRT plugin is missing",
    "driver": "driver is too old",
    "gated": "gated, or the login is missing",
    "unknown": "Its last line: something that nobody has seen before",
    "no-config": "its config.json cannot be read (FileNotFoundError)",
    "lost-rank": "rank1.engine is missing",
    "other-version": 'the engine says version "0.10.0", planned "1.2.1"',
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_explained_and_leaves_nothing_that_looks_done(native, fault):
    spec = native.write_spec()
    native.set(fault=f"target:{fault}")
    result = native.build(spec)
    assert result.exit_code == 1, result.output
    assert FAULTS[fault] in result.stderr
    assert "Traceback" not in result.output
    (log,) = native.workspace.logs.glob("engine-target.*.log")
    assert "TensorRT-LLM version" in log.read_text()
    assert str(log) in result.stderr
    assert not native.workspace.engine("target").exists()
    assert not native.workspace.manifest.exists()
    assert native.hidden() == []
    native.unset("fault")
    native.forget_calls()
    assert native.build(spec).exit_code == 0
    assert "target" in [Path(call["argv"][1]).name for call in native.calls("trtllm-build")]
    assert len(list(native.workspace.logs.glob("engine-target.*.log"))) == 2


def test_a_failing_step_ends_the_one_beside_it(native):
    native.set(fault="draft:crash", delay_s="0")
    slow = native.folder / "bin" / "trtllm-build"
    slow.write_text(slow.read_text().replace("exec ", 'case "$*" in *checkpoints/target*) sleep 600;; esac\nexec '))
    started = time.monotonic()
    result = native.build(native.write_spec())
    assert result.exit_code == 1 and "engine-draft failed with exit code 1" in result.stderr
    assert time.monotonic() - started < 300
    assert left_processes(native) == []


def left_processes(machine) -> list[str]:
    """Command lines of living processes that the stand-ins started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"STANDIN_CALLS={machine.folder}/calls".encode() in environment and int(entry.name) != os.getpid():
            found.append(command.replace(b"\0", b" ").decode())
    return found


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything(native, number):
    """The hanging tool ignores SIGTERM and has a worker in a session of its own."""
    native.set(fault="target:hang")
    spec = native.write_spec()
    build = native.start(spec)
    wait_for(lambda: any("time.sleep(600)" in command for command in left_processes(native)))
    build.send_signal(number)
    output, _ = build.communicate(timeout=60)
    assert build.returncode == 130, output
    assert left_processes(native) == []
    assert native.hidden() == []
    assert not native.workspace.engine("target").exists()


def test_a_killed_build_takes_its_tools_along(native):
    native.set(fault="target:hang")
    spec = native.write_spec()
    build = native.start(spec)
    wait_for(lambda: any("time.sleep(600)" in command for command in left_processes(native)))
    build.kill()
    build.communicate(timeout=60)
    native.unset("fault")
    assert native.build(spec).exit_code == 0  # it waits for the lock, which the dying tools hold
    assert left_processes(native) == []
    assert native.hidden() == []


def undisturbed(native) -> dict[str, bytes]:
    spec = native.write_spec()
    assert native.build(spec).exit_code == 0
    outputs = same_paths(native.outputs())
    for folder in ("checkpoints", "engines", "logs"):
        subprocess.run(["rm", "-r", str(native.workspace.root / folder)], check=True)
    native.workspace.manifest.unlink()
    return outputs


def same_paths(outputs: dict[str, bytes]) -> dict[str, bytes]:
    """An engine's config.json names the timing cache by the path that it was written to, which has a random part."""
    return {name: re.sub(rb"\.\w+\.[0-9a-f]{8}\.partial", b"", content) for name, content in outputs.items()}


def kill_and_resume(native, after_s: float, expected: dict[str, bytes]) -> None:
    spec = native.write_spec()
    build = native.start(spec)
    time.sleep(after_s)
    build.kill()
    build.communicate(timeout=60)
    result = native.build(spec)
    assert result.exit_code == 0, result.output
    assert same_paths(native.outputs()) == expected
    assert left_processes(native) == []
    assert native.hidden() == []
    subprocess.run(["rm", "-r", str(native.workspace.root)], check=True)


@pytest.mark.parametrize("after_s", [0.3, 0.7, 1.1])
def test_a_build_killed_at_any_moment_is_finished_by_the_next(native, after_s):
    expected = undisturbed(native)
    native.set(delay_s="0.5")
    kill_and_resume(native, after_s, expected)


@pytest.mark.slow
def test_thirty_killed_builds(native):
    import random

    expected = undisturbed(native)
    native.set(delay_s="0.5")
    moments = random.Random(5)
    for _ in range(30):
        kill_and_resume(native, moments.uniform(0.1, 2.0), expected)


def test_containers_of_a_killed_build_are_removed(container):
    """One that nobody waits for, as dockerd keeps it when its client is killed."""
    spec = container.write_spec()
    container.build(spec)
    label = next(
        after
        for call in container.calls("docker")
        for before, after in zip(call["argv"], call["argv"][1:], strict=False)
        if before == "--label"
    )
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    state = container.folder / "containers"
    (state / "left.json").write_text(json.dumps({"labels": [label], "pid": orphan.pid}))
    (state / "foreign.json").write_text(json.dumps({"labels": ["trtspec.workspace=other"], "pid": other.pid}))
    assert container.build(spec, "--force").exit_code == 0
    assert orphan.wait(10) == -signal.SIGKILL
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_failing_container_is_removed_by_name(container):
    container.set(fault="draft:crash")
    assert container.build(container.write_spec()).exit_code == 1
    removed = [call["argv"][2] for call in container.calls("docker") if call["argv"][:2] == ["rm", "--force"]]
    assert any(name.startswith("trtspec-engine-draft-") for name in removed)


def test_a_build_that_cannot_start_its_tool_says_so(native):
    broken = native.folder / "bin" / "trtllm-build"
    broken.write_text("#!/no/such/interpreter\n")
    result = native.build(native.write_spec())
    assert result.exit_code == 1
    assert "The command cannot be started: No such file or directory" in result.stderr


def test_the_token_of_the_hub_stays_secret(container):
    token = "hf_plantedtokenplantedtoken"
    container.monkeypatch.setenv("HF_TOKEN", token)
    fp8 = {"quantization": "fp8", "kv_cache_dtype": "fp8"}
    spec = container.write_spec(target=fp8, draft=fp8)
    result = container.build(spec)
    assert result.exit_code == 0, result.output
    texts = [result.output, container.build(spec, "--dry-run").output, container.build(spec, "--print-script").output]
    files = [path for path in container.workspace.root.rglob("*") if path.is_file()]
    assert not any(token in text for text in texts)
    assert not any(token.encode() in path.read_bytes() for path in files)
    assert not any(token in " ".join(call["argv"]) for call in container.calls())
    # It did reach the one tool that reads from the hub, which printed it.
    quantised = container.calls("quantize.py")
    assert quantised and all(call["environment"]["HF_TOKEN"] == token for call in quantised)
    assert all("HF_TOKEN" not in call["environment"] for call in container.calls("trtllm-build"))
    (log, _) = sorted(container.workspace.logs.glob("quantize-*.log"))
    assert "HF_TOKEN is [secret]" in log.read_text()


def test_a_gated_tokenizer_is_named_while_quantising(container):
    fp8 = {"quantization": "fp8", "kv_cache_dtype": "fp8"}
    container.set(fault="quantize:gated")
    result = container.build(container.write_spec(target=fp8, draft=fp8))
    assert result.exit_code == 1
    assert "hf auth login" in result.stderr
    assert not list(container.workspace.root.glob("checkpoints/*"))
