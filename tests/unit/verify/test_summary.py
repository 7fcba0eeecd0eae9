"""Figures of a load from records made up here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trt_spec.verify.results import LoadResult, RequestResult, to_json
from trt_spec.verify.summary import distribute, summarise_load

GOOD = RequestResult(
    "a", "chat", "answered", "", 0.0, 0.0, 1.1, (0.2, 0.5, 1.1), (3, 4, 2), 9, "ids", "text",
    rounds_drafted=(4, 4), rounds_accepted=(3, 1), drafted_tokens=8, accepted_tokens=4,
)  # fmt: skip
SLOW = replace(GOOD, id="b", outcome="timed_out", error="total timeout 9 s", latency_s=9.0, message_s=(),
               message_tokens=(), tokens=0)  # fmt: skip
BROKEN = replace(GOOD, id="c", outcome="failed", error="broke", latency_s=0.01)


def test_figures_of_one_answer():
    summary = summarise_load(LoadResult(2.0, (GOOD,)))
    assert summary.time_to_first_token_s.mean == 0.2
    assert summary.inter_token_latency_s.mean == pytest.approx((1.1 - 0.2) / 6)  # 4 + 2 tokens came after the first 3
    assert [summary.inter_message_s.minimum, summary.inter_message_s.maximum] == pytest.approx([0.3, 0.6])
    assert summary.tokens_per_s == 4.5 and summary.tokens_per_s_per_user.p50 == pytest.approx(9 / 1.1)
    assert (summary.acceptance.drafted, summary.acceptance.accepted, summary.acceptance.rounds) == (8, 4, 2)
    assert summary.acceptance.alpha == pytest.approx(4 / (4 + 2))


def test_failed_requests_are_counted_and_slow_ones_stay_in_the_averages():
    summary = summarise_load(LoadResult(9.0, (GOOD, SLOW, BROKEN)))
    assert (summary.requests, summary.answered, summary.failed, summary.timed_out) == (3, 1, 1, 1)
    assert summary.answered_fraction == pytest.approx(1 / 3)
    assert summary.errors == {"total timeout 9 s": 1, "broke": 1}
    assert summary.latency_s.count == 2 and summary.latency_s.maximum == 9.0
    assert summary.time_to_first_token_s.maximum == 9.0
    assert summary.tokens == 9 and summary.tokens_per_s == 1.0


def test_nothing_answered_gives_no_figures_but_a_document():
    summary = summarise_load(LoadResult(1.0, (BROKEN,)))
    assert summary.time_to_first_token_s is None and summary.acceptance is None and summary.token_source is None
    assert json.loads(to_json(summary))["failed"] == 1
    assert summarise_load(LoadResult(0.0, ())).tokens_per_s is None


def test_an_endpoint_silent_on_drafts_has_no_acceptance_figures():
    silent = replace(GOOD, rounds_drafted=(), rounds_accepted=(), drafted_tokens=None, token_source="usage")
    summary = summarise_load(LoadResult(1.0, (GOOD, silent)))
    assert summarise_load(LoadResult(1.0, (silent,))).acceptance is None
    assert summary.token_source == "usage"  # the least certain one
    zero = replace(silent, drafted_tokens=0)
    assert summarise_load(LoadResult(1.0, (zero,))).acceptance.drafted == 0


def test_percentiles_are_values_that_occurred():
    figures = distribute(range(1, 101))
    assert (figures.p50, figures.p90, figures.p99, figures.mean) == (50, 90, 99, 50.5)
    assert distribute([7.0]).p99 == 7.0 and distribute([]) is None
