"""A bench on a real Triton: of the shared server by its address, and the whole command."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from trt_spec.spec.load import load_spec
from trt_spec.verify.bench.plan import resolve_bench
from trt_spec.verify.bench.regression import load_report
from trt_spec.verify.bench.session import Address, Bench, System
from trt_spec.verify.bench.settings import PRIMARY

PROMPTS = ("hello", "def add(a, b):", "naive cafe", "1 + 1 =")


@pytest.fixture
def prompts_file(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in PROMPTS))
    return path


@pytest.mark.slow
def test_step_times_and_acceptance_are_real_and_predict(served, write_spec, prompts_file, tiny):
    @contextlib.contextmanager
    def start():
        yield Address(served.grpc_url, served.metrics_url, tiny / "tokenizer")

    sweeps = ("draft_len=0,1,4", "concurrency=2")
    options, conditions = resolve_bench(
        load_spec(write_spec()), sweeps, quick=True, prompts_path=prompts_file, command=""
    )
    bench = Bench(options, [System(PRIMARY, start)], conditions)
    bench.run()
    report = bench.report
    assert [step.batch for step in report.steps] == [1, 2]
    for step in report.steps:
        assert set(step.draft_s) == set(step.verify_s) == {1, 2, 4}
        assert min(step.plain_token_s, *step.draft_s.values(), *step.verify_s.values()) > 0
        assert min(step.read_s, step.draft_read_s) >= 0
    drafting = [point for point in report.points if point.setting.num_draft_tokens]
    assert len(drafting) == 4  # lengths 1 and 4 alone, 2 and 4 with two at once
    for point in drafting:
        assert point.load.answered == point.load.requests > 0
        assert point.load.acceptance.drafted > 0
        assert max(len(point.load.acceptance.per_position_acceptance_rate), 1) <= point.setting.num_draft_tokens
        assert point.predicted_decode_speedup > 0
        assert point.speedup is not None
    assert any("nv_inference_request_success" in name for name in report.server_metrics.counters)


@pytest.fixture
def run_bench(tmp_path, write_spec, prompts_file):
    """run_bench(*options) -> the started command, with its report in tmp_path/report."""

    def start(*options):
        argv = [sys.executable, "-m", "trt_spec", "bench", str(write_spec()), "-o", str(tmp_path / "work"), "--quick"]
        argv += ["--prompts", str(prompts_file), "--report", str(tmp_path / "report"), *options]
        environment = {**os.environ, "TRTSPEC_CACHE": str(tmp_path / "cache")}
        return subprocess.Popen(argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return start


@pytest.mark.slow
def test_the_command_builds_serves_measures_and_compares(run_bench, tmp_path):
    process = run_bench(
        "--sweep", "draft_len=0,2", "--sweep", "draft=int8", "--minutes", "2", "--write-tuning", "--json"
    )
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    report = load_report(tmp_path / "report" / "bench.json")
    assert json.loads(out)["verdict"] == report.verdict
    assert {point.setting.system for point in report.points} == {PRIMARY, "int8"}
    assert (tmp_path / "report" / "tuning.patch").is_file()
    assert not (tmp_path / "work" / "server.json").exists()  # both servers were stopped
    target = tmp_path / "work" / "engines" / "target"
    shared = tmp_path / "work" / "bench" / "int8" / "engines" / "target"
    weights = max(target.iterdir(), key=lambda path: path.stat().st_size)
    assert (shared / weights.name).stat().st_ino == weights.stat().st_ino  # linked, not built again


@pytest.mark.slow
def test_ctrl_c_leaves_a_valid_partial_report_and_no_server(run_bench, tmp_path):
    process = run_bench("--sweep", "draft_len=0,1,2,3,4", "--sweep", "concurrency=1,2,4")
    deadline = time.monotonic() + 200
    for line in process.stderr:
        if line.startswith("block 1: 1 drafted"):
            break
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    report = load_report(tmp_path / "report" / "bench.json")
    assert report.interrupted
    assert 1 <= len(report.points) < 10
    assert (tmp_path / "report" / "bench.html").read_text().count("<svg") == 5
    assert not (tmp_path / "work" / "server.json").exists()
