"""Whole verifications against a fake Triton, honest and otherwise, through the command line where exit codes matter."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.errors import StepFailed, VerifyFailed
from trt_spec.verify.lossless.probes import ProbeOptions
from trt_spec.verify.report import DIRECT_REFERENCE, ORCHESTRATOR_REFERENCE, render_json, render_markdown
from trt_spec.verify.results import Distribution
from trt_spec.verify.run import VerifyOptions, run_verify
from trt_spec.verify.server_metrics import Scrape
from trt_spec.verify.thresholds import Thresholds
from trt_spec.verify.under_load import UnderLoadOptions
from trt_spec.verify.verdict import check_report, find_faults

MAX_TOKENS = 12
NO_PROBES = ProbeOptions(samples=0, canaries=0, noise_prompts=0, fuzz=False)  # they have tests of their own


@pytest.fixture
def options(fake_triton, tokenizer_folder: Path, prompts_file: Path) -> VerifyOptions:
    return VerifyOptions(
        url=fake_triton.url,
        prompts_path=prompts_file,
        max_tokens=MAX_TOKENS,
        tokenizer_folder=tokenizer_folder,
        deadline_s=20,
        probes=NO_PROBES,
    )


def invoke(*arguments: object):
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


def test_honest_server_passes(options: VerifyOptions, tmp_path: Path) -> None:
    said: list[str] = []
    report = run_verify(
        replace(options, report_folder=tmp_path / "r", measure_draft_alone=True, models={"target": "toy"}), said.append
    )
    check_report(report)
    assert report.lossless and report.verdict.verdict == "lossless" and report.reference == DIRECT_REFERENCE
    assert [prompt.judgement.outcome for prompt in report.prompts] == ["same"] * 3
    assert all(prompt.plain_is_reference for prompt in report.prompts)
    assert report.plain.tokens == report.speculative.tokens > 0
    assert report.speedup == pytest.approx(report.speculative.tokens_per_s / report.plain.tokens_per_s)
    assert report.acceptance.drafted == sum(prompt.drafted for prompt in report.prompts) > 0
    assert report.draft_alone and report.draft_alone.tokens > 0 and report.target_alone
    assert sum("same" in line for line in said) == 3
    document = json.loads((tmp_path / "r" / "report.json").read_text(encoding="utf-8"))
    assert document == json.loads(render_json(report))
    assert document["conditions"]["server"] == "fake-triton 0.0" and document["conditions"]["models"] == {
        "target": "toy"
    }
    assert document["conditions"]["num_draft_tokens"] == 4
    markdown = (tmp_path / "r" / "report.md").read_text(encoding="utf-8")
    assert DIRECT_REFERENCE in markdown and "| two |" in markdown and "draft alone" in markdown


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_a_target_that_drafts_inside(options: VerifyOptions, fake_triton, has_tokenizer: bool) -> None:
    fake_triton.behaviour.engine_drafts, fake_triton.behaviour.max_draft_len = True, "0"
    report = run_verify(options if has_tokenizer else replace(options, tokenizer_folder=None))
    check_report(report)
    assert report.verdict.passed and report.lossless
    assert (report.acceptance.rounds, report.speedup, report.speedup_of_pairs) == (0, None, None)
    assert "drafts with its own heads as well" in report.reference
    assert "tensorrt_llm_draft" not in {name for name, _ in fake_triton.requests}
    fake_triton.behaviour.max_draft_len, fake_triton.behaviour.corrupt_from = "4", 2
    with pytest.raises(VerifyFailed, match="differ from the reference"):
        check_report(run_verify(options if has_tokenizer else replace(options, tokenizer_folder=None)))


def test_sides_run_in_alternating_order_after_the_reference(options: VerifyOptions, fake_triton) -> None:
    run_verify(options)
    counted = [
        (name, inputs) for name, inputs in fake_triton.requests if inputs.get("max_tokens", [0])[0] == MAX_TOKENS
    ]
    sides = [int(inputs["num_draft_tokens"][0]) for name, inputs in counted if name == "tensorrt_llm_bls"]
    assert sides == [0, 4, 4, 0, 0, 4]
    streamed = [inputs["text_input"][0] for name, inputs in fake_triton.requests if name == "ensemble"]
    assert len(set(streamed)) == len(streamed)  # every first token is a cold one


def test_the_servers_metrics_are_read_before_and_after(options: VerifyOptions, monkeypatch) -> None:
    pages = iter([Scrape({"a_total": 3.0}, {"a_total": "counter"}), Scrape({"a_total": 8.0}, {"a_total": "counter"})])
    monkeypatch.setattr("trt_spec.verify.run.scrape_metrics", lambda _: next(pages))
    report = run_verify(replace(options, metrics_url="http://127.0.0.1:1/metrics"))
    assert report.server_metrics.counters == {"a_total": 5.0}
    assert run_verify(options).server_metrics.missing == "no address of metrics is known"
    assert report.machine.memory_total_bytes > 0


def test_prompt_goes_through_the_chat_template(options: VerifyOptions, fake_triton) -> None:
    assert run_verify(options).conditions.prompt_format == "chat template"
    texts = [i["text_input"][0].decode() for name, i in fake_triton.requests if name == "tensorrt_llm_bls"]
    assert "<s>user: 둘 🙂\nassistant:" in texts


def test_without_tokenizer_the_orchestrator_is_the_reference(options: VerifyOptions, fake_triton) -> None:
    report = run_verify(replace(options, tokenizer_folder=None))
    assert report.lossless and report.reference == ORCHESTRATOR_REFERENCE and report.target_alone is None
    assert {name for name, _ in fake_triton.requests} == {"tensorrt_llm_bls", "ensemble"}
    fake_triton.behaviour.corrupt_from = 2
    broken = run_verify(replace(options, tokenizer_folder=None))
    assert broken.verdict.verdict == "different" and broken.prompts[0].judgement.gap is None


def test_wrong_token_with_a_clear_gap_is_different(options: VerifyOptions, fake_triton) -> None:
    fake_triton.behaviour.second_best_at = (3,)
    report = run_verify(options)
    judgement = report.prompts[0].judgement
    assert not report.lossless and judgement.outcome == "different"
    assert judgement.position == 3 and judgement.gap == pytest.approx(4.0)
    with pytest.raises(VerifyFailed, match=r"the first is 'one': different at position 3, .* logit gap 4"):
        check_report(report)


def test_near_tie_is_counted_and_tolerated(options: VerifyOptions, fake_triton) -> None:
    fake_triton.behaviour.second_best_at = (3, 5)
    fake_triton.behaviour.gap = 0.0008
    report = run_verify(options)
    check_report(report)
    assert report.lossless and report.verdict.near_tie > 0
    judgement = report.prompts[0].judgement
    assert (judgement.outcome, judgement.position, judgement.near_ties) == ("near_tie", 3, 2)
    assert judgement.gap == pytest.approx(0.0008, abs=1e-5)


def test_tolerance_is_a_parameter(options: VerifyOptions, fake_triton) -> None:
    fake_triton.behaviour.second_best_at = (3,)
    fake_triton.behaviour.gap = 0.2
    assert not run_verify(options).lossless
    assert run_verify(replace(options, near_tie_gap=0.25)).lossless


def test_nonsense_after_a_near_tie_is_different(options: VerifyOptions, fake_triton) -> None:
    fake_triton.behaviour.second_best_at = (3,)
    fake_triton.behaviour.gap = 0.0008
    fake_triton.behaviour.corrupt_from = 6
    judgement = run_verify(options).prompts[0].judgement
    assert (judgement.outcome, judgement.position, judgement.near_ties) == ("different", 6, 1)


def test_gap_unknown_is_different(options: VerifyOptions, fake_triton) -> None:
    fake_triton.behaviour.second_best_at = (3,)
    fake_triton.behaviour.gap = 0.0008
    fake_triton.behaviour.no_logits = True
    assert run_verify(options).prompts[0].judgement.outcome == "different"


def test_other_prompt_ids_are_recognised(options: VerifyOptions, fake_triton, tmp_path: Path, make_tokenizer) -> None:
    # One raw letter, so that the extra id is within the few tokens that the toy model looks back.
    prompts = tmp_path / "one.jsonl"
    prompts.write_text('{"text": "a"}', encoding="utf-8")
    fake_triton.behaviour.prefix_id = 77
    raw = replace(options, prompts_path=prompts, tokenizer_folder=make_tokenizer(tmp_path / "raw"))
    with pytest.raises(VerifyFailed, match="other prompt ids"):
        check_report(run_verify(raw))


def test_model_that_never_answers_is_given_up(options: VerifyOptions, fake_triton) -> None:
    fake_triton.behaviour.hang_on = "tensorrt_llm_draft"
    with pytest.raises(
        StepFailed, match=r"tensorrt_llm_draft \(draft model\): total timeout 0.5 s: no response after 0.5 s for"
    ):
        run_verify(replace(options, deadline_s=0.5))


def test_prompt_that_takes_the_server_down_is_named(options: VerifyOptions, fake_triton, tmp_path: Path) -> None:
    fake_triton.behaviour.die_on = "둘"
    with pytest.raises(StepFailed, match=r"went away while tensorrt_llm_bls .* served prompt 'two'"):
        run_verify(replace(options, report_folder=tmp_path / "r"))
    assert not (tmp_path / "r").exists()


# -- command line --------------------------------------------------------------------------------------------------


@pytest.fixture
def arguments(options: VerifyOptions) -> list[object]:
    return [
        "--url",
        options.url,
        "--prompts",
        options.prompts_path,
        "--max-tokens",
        MAX_TOKENS,
        "--tokenizer",
        options.tokenizer_folder,
        "--timeout",
        20,
    ]


def test_command_prints_one_document(arguments: list[object]) -> None:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["lossless"] is True
    assert {"acceptance", "plain", "speculative", "speedup", "prompts", "conditions"} <= set(document)
    assert document["speedup"] > 0 and document["acceptance"]["mean_acceptance_length"] > 1


def test_command_prints_a_table(arguments: list[object]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert "acceptance" in result.stdout and "lossless (3 same" in result.stdout


def test_built_in_prompts_pass_too(options: VerifyOptions) -> None:
    result = invoke("--url", options.url, "--max-tokens", 4, "--json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["prompts"]) >= 24


@pytest.mark.parametrize(
    ("fault", "words", "lossless"),
    [
        ({"drop_last_token": True}, "prompts differ", False),
        ({"corrupt_from": 2}, "prompts differ", False),
        ({"never_draft": True}, "Nothing was ever drafted", True),
    ],
)
def test_bad_verdict_exits_4_after_the_report(
    arguments: list[object], fake_triton, tmp_path: Path, fault: dict, words: str, lossless: bool
) -> None:
    for name, value in fault.items():
        setattr(fake_triton.behaviour, name, value)
    result = invoke(*arguments, "--json", "--report", tmp_path / "r")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["lossless"] is lossless
    assert json.loads((tmp_path / "r" / "report.json").read_text(encoding="utf-8"))["lossless"] is lossless
    assert words in result.stderr and "Traceback" not in result.stderr


def test_draft_model_not_ready_exits_1(arguments: list[object], fake_triton) -> None:
    fake_triton.behaviour.not_ready = ("tensorrt_llm_draft",)
    result = invoke(*arguments)
    assert result.exit_code == 1 and "Draft model not ready" in result.stderr


def test_server_down_exits_3(prompts_file: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    result = invoke("--url", f"127.0.0.1:{port}", "--prompts", prompts_file)
    assert result.exit_code == 3 and "trtspec serve" in result.stderr


def test_malformed_prompts_exit_2(fake_triton, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"text": "a"}\n{"text"', encoding="utf-8")
    result = invoke("--url", fake_triton.url, "--prompts", path)
    assert result.exit_code == 2 and "line 2" in result.stderr
    assert fake_triton.requests == []


@pytest.mark.parametrize(
    "arguments",
    [[], ["spec.yaml", "--url", "127.0.0.1:1"], ["--url", "h:1/nonsense"], ["--url", "127.0.0.1:1", "--timeout", "0"]],
)
def test_usage_exits_2(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


def test_streams_under_load_are_measured_with_drafts(options: VerifyOptions, fake_triton) -> None:
    report = run_verify(replace(options, under_load=UnderLoadOptions(requests=5, concurrency=2, tokens=7)))
    assert report.under_load is not None
    assert (report.under_load.requests, report.under_load.answered) == (5, 5)
    sent = [inputs for name, inputs in fake_triton.requests if name == "ensemble" and inputs["max_tokens"][0] == 7]
    assert [int(inputs["num_draft_tokens"][0]) for inputs in sent] == [4] * 5
    assert "inter-token latency" in render_markdown(report)


def test_the_first_token_is_judged_under_load(options: VerifyOptions, fake_triton) -> None:
    report = run_verify(replace(options, thresholds=Thresholds(max_p99_ttft_ms=60_000)))
    slow = replace(report.under_load, time_to_first_token_s=Distribution(16, 1.0, 1.0, 1.0, 90.0, 1.0, 90.0))
    assert find_faults(report) == ()
    assert [fault.name for fault in find_faults(replace(report, under_load=slow))] == ["first_token_late"]


def test_no_load_if_none_is_asked_for(options: VerifyOptions) -> None:
    assert run_verify(replace(options, under_load=UnderLoadOptions(requests=0))).under_load is None
