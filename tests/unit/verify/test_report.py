"""Rendering of reports, from values made up here."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from trt_spec.verify.acceptance import Round, measure_acceptance
from trt_spec.verify.client import Generation
from trt_spec.verify.judge import Judgement, judge_run
from trt_spec.verify.measure import Pair, Sample, measure_speedup, measure_speedup_of_pairs, summarise_side
from trt_spec.verify.report import Conditions, PromptReport, Report, print_report, render_json, render_markdown


def sample(tokens: int, seconds: float, first: float | None) -> Sample:
    return Sample(Generation(tuple(range(tokens)), "", seconds, (), 0, 0), first)


@pytest.fixture
def report() -> Report:
    judgement = Judgement("near_tie", 3, 7, None, 0.0005, 1)
    pairs = [
        Pair(sample(10, 1.0, 0.1), sample(10, 0.5, 0.2)),
        Pair(sample(30, 1.0, 0.3), sample(30, 1.0, 0.2)),
        Pair(sample(20, 2.0, None), sample(20, 0.5, 0.2)),
    ]
    plain = summarise_side([pair.plain for pair in pairs])
    speculative = summarise_side([pair.speculative for pair in pairs])
    conditions = Conditions(
        "2026-01-01", "trtspec verify", "h:1", "triton 2", {"python": "3.11"}, {"target": "a|b"}, "cpu", 2, "built in",
        "raw text", 8, 4, 1e-3,
    )  # fmt: skip
    prompt = PromptReport("p|1", "chat", judgement, True, 10, 4, 2, 1, 10.0, None, 0.1, None, "[bold]한국어 🙂")
    return Report(
        lossless=True,
        acceptance=measure_acceptance([Round(4, 2)]),
        plain=plain,
        speculative=speculative,
        speedup=measure_speedup(speculative.tokens_per_s, plain.tokens_per_s),
        speedup_of_medians=measure_speedup(speculative.median_tokens_per_s, plain.median_tokens_per_s),
        speedup_of_pairs=measure_speedup_of_pairs(pairs),
        verdict=judge_run([judgement], 4),
        reference="target engine called directly",
        target_alone=None,
        draft_alone=None,
        prompts=(prompt,),
        conditions=conditions,
    )


def test_totals_medians_and_both_ratios(report: Report) -> None:
    assert report.plain.tokens_per_s == pytest.approx(60 / 4)
    assert report.plain.median_tokens_per_s == pytest.approx(10.0)
    assert report.plain.median_time_to_first_token_s == pytest.approx(0.2)
    assert report.speedup == pytest.approx((60 / 2) / (60 / 4))
    assert report.speedup_of_medians == pytest.approx(30 / 10)
    assert report.speedup_of_pairs == pytest.approx(2.0)


def test_unknown_speeds_give_no_ratio() -> None:
    empty = summarise_side([])
    assert empty.tokens_per_s is None and empty.median_time_to_first_token_s is None
    assert measure_speedup(None, 1.0) is None and measure_speedup(1.0, 0.0) is None


def test_json_has_the_agreed_keys_and_keeps_characters(report: Report) -> None:
    text = render_json(report)
    document = json.loads(text)
    assert {"lossless", "acceptance", "plain", "speculative", "speedup"} <= set(document)
    assert document["acceptance"]["acceptance_length_histogram"] == {"3": 1}
    assert "한국어 🙂" in text


def test_json_never_holds_what_json_does_not_know(report: Report) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        render_json(replace(report, speedup=float("nan")))


def test_markdown_keeps_its_columns(report: Report) -> None:
    markdown = render_markdown(report)
    assert "p\\|1" in markdown and "a\\|b" in markdown
    assert "near-tie at position 3, expected token 7, found the end, logit gap 0.0005" in markdown
    rows = [line.replace("\\|", "") for line in markdown.splitlines() if line.startswith("| p")]
    assert {row.count("|") for row in rows if "near-tie" in row} == {7}


def test_terminal_table_takes_markup_for_text(report: Report) -> None:
    from rich.console import Console

    out = io.StringIO()
    prompt = replace(report.prompts[0], id="[red]x[/nonsense]")
    print_report(replace(report, prompts=(prompt,)), Console(file=out, width=250))
    assert "[red]x[/nonsense]" in out.getvalue()
    assert "0 same, 1 near-tie, 0 different" in out.getvalue()
