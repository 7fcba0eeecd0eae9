"""Servers with one fault each: every one is named and ends with exit code 4; honest ones pass."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.errors import VerifyFailed
from trt_spec.verify.junit import render_junit
from trt_spec.verify.lossless.probes import ProbeOptions
from trt_spec.verify.run import VerifyOptions, run_verify
from trt_spec.verify.thresholds import Thresholds
from trt_spec.verify.verdict import check_report, find_faults

ALL = ProbeOptions()
NONE = ProbeOptions(samples=0, canaries=0, noise_prompts=0, fuzz=False)
ONLY = {
    "nothing": NONE,
    "sampling": replace(NONE, samples=160),
    "isolation": replace(NONE, canaries=8),
    "noise": replace(NONE, noise_prompts=3),
    "fuzz": replace(NONE, fuzz=True),
}


@pytest.fixture
def options(fake_triton, tokenizer_folder: Path, prompts_file: Path) -> VerifyOptions:
    return VerifyOptions(
        url=fake_triton.url,
        prompts_path=prompts_file,
        max_tokens=40,
        tokenizer_folder=tokenizer_folder,
        deadline_s=20,
        probes=NONE,
    )


def faults_of(options: VerifyOptions) -> list[str]:
    return [fault.name for fault in find_faults(run_verify(options))]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("direct", [True, False])
def test_an_honest_server_passes_every_probe(options: VerifyOptions, seed: int, direct: bool) -> None:
    folder = options.tokenizer_folder if direct else None
    report = run_verify(replace(options, tokenizer_folder=folder, probes=replace(ALL, seed=seed)))
    check_report(report)
    probes = report.probes
    assert len(probes.sampled) == 2 and all(item.distinct_speculative > 2 for item in probes.sampled)
    assert probes.isolation.requests == 32 and probes.isolation.leaks == ()
    assert probes.fuzz.fatal is None and probes.fuzz.sent == probes.fuzz.answered + probes.fuzz.refused
    assert probes.draft_executions >= len(report.prompts)
    assert (probes.noise.same if direct else probes.noise) == (3 if direct else None)


@pytest.mark.parametrize(
    ("behaviour", "probe", "name"),
    [
        ({"drop_token_at": 3}, "nothing", "dropped_token"),
        ({"second_best_at": (3,)}, "nothing", "wrong_token"),
        ({"drop_last_token": True}, "nothing", "cut_short"),
        ({"never_draft": True}, "nothing", "speculation_inactive"),
        ({"claims_drafts": True}, "nothing", "drafts_not_real"),
        ({"leak": True}, "isolation", "cross_request_leak"),
        ({"reuse_seed": True}, "sampling", "seed_reused"),
        ({"ignore_seed": True}, "sampling", "seed_ignored"),
        ({"biased": True}, "sampling", "distribution_differs"),
        ({"die_on": "before\x00after"}, "fuzz", "poison_prompt"),
    ],
)
@pytest.mark.parametrize("direct", [True, False])
def test_a_planted_fault_is_named(options, fake_triton, behaviour: dict, probe: str, name: str, direct: bool) -> None:
    folder = options.tokenizer_folder if direct else None
    # Toy answers end within 40 tokens; one that is cut at its end token is the same answer.
    tokens = 6 if name == "cut_short" else options.max_tokens
    options = replace(options, probes=ONLY[probe], tokenizer_folder=folder, max_tokens=tokens)
    for key, value in behaviour.items():
        setattr(fake_triton.behaviour, key, value)
    report = run_verify(options)
    assert [fault.name for fault in find_faults(report)] == [name]
    with pytest.raises(VerifyFailed) as caught:
        check_report(report)
    assert caught.value.exit_code == 4 and caught.value.remedy


def test_one_wrong_token_in_a_hundred_is_caught(options, fake_triton, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"prompt number {n}"}) for n in range(30)), encoding="utf-8")
    fake_triton.behaviour.wrong_probability = 0.01
    report = run_verify(replace(options, prompts_path=path))
    assert [fault.name for fault in find_faults(report)] == ["wrong_token"]
    assert 1 <= report.verdict.different < 30


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"drop_token_at": 3}, "a token of the target's answer is missing"),
        ({"leak": True}, "Cross-request leak: the answer to canary-"),
        ({"claims_drafts": True}, "speculation inactive"),
        ({"reuse_seed": True}, "a seed is re-used"),
    ],
)
def test_the_command_exits_with_4_and_says_the_name(options, fake_triton, tmp_path, behaviour, words) -> None:
    for key, value in behaviour.items():
        setattr(fake_triton.behaviour, key, value)
    junit = tmp_path / "verify.xml"
    arguments = ["verify", "--url", options.url, "--prompts", options.prompts_path, "--max-tokens", 20, "--tokenizer",
                 options.tokenizer_folder, "--junit", junit]  # fmt: skip
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 4 and words in " ".join(result.stderr.split()) and "Traceback" not in result.stderr
    suite = ElementTree.parse(junit).getroot()
    assert int(suite.get("failures")) == len(suite.findall("*/failure")) > 0


def test_b099_no_draft_execution_is_speculation_inactive(options, fake_triton) -> None:
    fake_triton.behaviour.claims_drafts = True
    report = run_verify(options)
    assert report.acceptance.drafted > 0 and report.probes.draft_executions == 0
    with pytest.raises(VerifyFailed, match="no request to the draft model: speculation inactive"):
        check_report(report)
    lengths = [i["num_draft_tokens"][0] for name, i in fake_triton.requests if name == "tensorrt_llm_bls"]
    assert set(lengths) == {0, 4}  # sent with every request


def test_b099_drafts_from_ngrams_need_no_draft_model(options, fake_triton) -> None:
    fake_triton.behaviour.claims_drafts, fake_triton.behaviour.draft_source = True, "ngram"
    report = run_verify(options)
    assert report.probes.draft_executions is None and find_faults(report) == ()


def test_b107_a_foreign_canary_is_a_cross_request_leak(options, fake_triton) -> None:
    fake_triton.behaviour.leak = True
    report = run_verify(replace(options, probes=ONLY["isolation"]))
    with pytest.raises(
        VerifyFailed, match=r"Cross-request leak: the answer to canary-\d+ holds the word of canary-\d+"
    ):
        check_report(report)


def test_b113_the_prompt_that_ends_the_server_is_named(options, fake_triton) -> None:
    fake_triton.behaviour.die_on = "<|eot_id|>"
    report = run_verify(replace(options, probes=ONLY["fuzz"]))
    assert report.probes.fuzz.fatal == "special-tokens" and report.verdict.lossless
    with pytest.raises(VerifyFailed, match=r"'special-tokens' takes the server down: The server on .* went away"):
        check_report(report)


def test_b113_a_refused_prompt_is_no_fault(options, fake_triton) -> None:
    fake_triton.behaviour.refuse = "   "
    report = run_verify(replace(options, probes=ONLY["fuzz"]))
    assert report.probes.fuzz.refused == 1 and find_faults(report) == ()


def test_b095_a_gap_within_the_noise_is_a_tie_and_a_clear_one_fails(options, fake_triton) -> None:
    fake_triton.behaviour.second_best_at = (3,)
    for gap, names in ((0.0009, []), (4.1, ["wrong_token"])):
        fake_triton.behaviour.gap = gap
        report = run_verify(options)
        assert [fault.name for fault in find_faults(report)] == names
        assert report.prompts[0].judgement.position == 3


def test_b095_noise_of_the_target_alone_is_measured_and_told(options, fake_triton) -> None:
    fake_triton.behaviour.second_best_at, fake_triton.behaviour.unsteady_batch = (3,), True
    report = run_verify(replace(options, probes=ONLY["noise"]))
    assert report.probes.noise.different > 0
    (fault,) = find_faults(report)
    assert "The target alone differs from itself" in fault.remedy


def test_strict_takes_no_near_tie(options, fake_triton) -> None:
    fake_triton.behaviour.second_best_at, fake_triton.behaviour.gap = (3,), 0.0005
    assert faults_of(options) == []
    assert faults_of(replace(options, thresholds=Thresholds(lossless="strict"))) == ["not_strict"]


def test_thresholds(options) -> None:
    wanted = Thresholds(min_speedup=1000.0, max_p99_ttft_ms=0.001)
    report = run_verify(replace(options, thresholds=wanted))
    assert [fault.name for fault in find_faults(report)] == ["too_slow", "first_token_late"]
    with pytest.raises(VerifyFailed, match=r"verify\.min_speedup is 1000\. .*verify\.max_p99_ttft_ms is 0\.001"):
        check_report(report)
    assert faults_of(replace(options, thresholds=Thresholds(min_speedup=1e-6, max_p99_ttft_ms=1e9))) == []


def test_b006_the_leg_that_fails_is_named(options, fake_triton) -> None:
    said: list[str] = []
    fake_triton.behaviour.not_ready = ("tensorrt_llm_draft",)
    arguments = ["verify", "--url", options.url, "--tokenizer", str(options.tokenizer_folder)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1 and "Draft model not ready" in result.stderr
    fake_triton.behaviour.not_ready = ()
    run_verify(options, said.append)
    legs = [name for name, _ in fake_triton.requests][:3]
    assert legs == ["tensorrt_llm", "tensorrt_llm_draft", "tensorrt_llm_bls"]
    assert said.index("every engine by itself, then the whole") == 1


def test_junit_holds_every_prompt_and_no_illegal_character(options, fake_triton) -> None:
    fake_triton.behaviour.drop_token_at = 2
    report = run_verify(replace(options, probes=ONLY["isolation"]))
    report = replace(report, prompts=(replace(report.prompts[0], id="\x00odd <&>"), *report.prompts[1:]))
    suite = ElementTree.fromstring(render_junit(report).encode())
    cases = suite.findall("testcase")
    assert len(cases) == int(suite.get("tests")) == 3 + 7
    assert {case.get("name") for case in cases} >= {"\ufffdodd <&>", "two", "isolation", "drafting"}
    assert {failure.get("type") for failure in suite.findall("*/failure")} == {"dropped_token"}
