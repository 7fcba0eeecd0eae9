"""Every probe says `held` of an engine that keeps its rule and `differs` of one that breaks it."""

import re
from dataclasses import replace

import numpy as np
import pytest

from trt_spec.verify.conformance.engine import ProbedEngine
from trt_spec.verify.conformance.prove import observe, prove_rows
from trt_spec.verify.conformance.rows import NOT_ROWS, ROWS

PROBED = [row.id for row in ROWS if row.probe is not None]
VARIANTS = {"wrong-length": "sequence-length", "no-reuse": "block-reuse"}
FELT_BY = {
    # Who ignores what a draft is worth also replaces too few, or none.
    "raw-draft-logits": {"residual-resampling", "acceptance-threshold"},
    "residual-resampling": {"raw-draft-logits", "acceptance-threshold"},  # a draw from p may be the draft again
    "wrong-length": set(PROBED),
    "penalties-count-prompt": {"min-tokens"},
}


def verdicts(toy, limits):
    _, proofs = prove_rows(toy, {"tensorrt_llm": limits})
    return {proof.row.id: proof.observation.verdict for proof in proofs}


@pytest.mark.parametrize("version", ["0.18.2", "1.2.1"])
def test_an_engine_that_keeps_the_rules_is_found_to_keep_them(make_toy, toy_limits, version):
    assert verdicts(make_toy(version=version), toy_limits) == dict.fromkeys(PROBED, "held")


@pytest.mark.parametrize("fault", [*PROBED, *VARIANTS])
def test_a_broken_rule_is_found_and_no_other(make_toy, toy_limits, fault):
    row = VARIANTS.get(fault, fault)
    found = verdicts(make_toy(fault), toy_limits)
    assert found[row] == "differs"
    assert {name for name, verdict in found.items() if verdict == "differs"} <= {row, *FELT_BY.get(fault, ())}


def test_log_probs_of_memory_that_was_not_set_are_unset(make_toy, toy_limits):
    assert verdicts(make_toy("garbage-log-probs"), toy_limits)["draft-log-probs"] == "held"


@pytest.mark.parametrize(
    ("refused", "row", "verdict"),
    [
        ("return_log_probs", "draft-log-probs", "not applicable"),
        ("return_perf_metrics", "block-reuse", "not applicable"),
        ("return_generation_logits", "raw-draft-logits", "not applicable"),
        ("draft_input_ids", "token-acceptance", "differs"),
        ("stop_words_list", "stop-word", "differs"),
    ],
)
def test_a_refusal_is_a_difference_only_where_the_rule_grants_the_request(make_toy, toy_limits, refused, row, verdict):
    (found,) = (found for found in [verdicts(make_toy(refuses=[refused]), toy_limits)])
    assert found[row] == verdict


def test_what_is_not_known_of_an_engine_is_not_applicable(make_toy, toy_limits):
    unknown = replace(toy_limits, max_draft_len=None, max_seq_len=None, max_num_tokens=None)
    found = verdicts(make_toy(), unknown)
    assert {name for name, verdict in found.items() if verdict != "held"} == {
        "draft-limit",
        "sequence-limit",
        "whole-prefix",
    }
    assert "differs" not in found.values()


def test_an_engine_without_drafts_is_not_asked_to_verify(make_toy, toy_limits):
    toy = make_toy(limits=replace(toy_limits, max_draft_len=0))
    found = verdicts(toy, replace(toy_limits, max_draft_len=0))
    assert "differs" not in found.values()
    assert found["token-acceptance"] == found["raw-draft-logits"] == "not applicable"
    assert found["end-id"] == "held"
    assert not any("draft_input_ids" in call for call in toy.calls)


def test_the_draft_engine_is_probed_without_drafts(make_toy, toy_limits):
    toy = make_toy(limits=replace(toy_limits, max_draft_len=0))
    _, proofs = prove_rows(toy, {"tensorrt_llm_draft": replace(toy_limits, max_draft_len=0)})
    assert [proof.row.id for proof in proofs] == [row.id for row in ROWS if row.on_draft]
    assert {proof.observation.verdict for proof in proofs} == {"held"}
    assert not any("draft_input_ids" in call for call in toy.calls)


def test_a_replay_is_a_bounded_number_of_small_requests(make_toy, toy_limits):
    toy = make_toy()
    requests, _ = prove_rows(toy, {"tensorrt_llm": toy_limits})
    assert requests == len(toy.calls) < 600
    assert max(call["request_output_len"] for call in toy.calls) <= 8
    assert not any(call["streaming"] for call in toy.calls)


def test_huge_limits_are_not_probed_by_huge_requests(make_toy, toy_limits):
    large = replace(toy_limits, max_seq_len=131_072, max_num_tokens=65_536)
    toy = make_toy(limits=large)
    found = verdicts(toy, large)
    assert found["sequence-limit"] == found["whole-prefix"] == "not applicable"
    assert max(len(call["input_ids"]) for call in toy.calls) <= 200


def test_rows_tell_where_they_were_read_and_what_follows():
    assert len({row.id for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", row.id)
        assert all((row.rule, row.source, row.consequence, row.probed))
        assert row.probe is not None or row.probed.startswith("documented only")
    assert all(NOT_ROWS.values())


def test_an_observation_names_what_was_expected_and_seen(make_toy, toy_limits):
    (row,) = (row for row in ROWS if row.id == "raw-draft-logits")
    seen = observe(row, ProbedEngine(make_toy("raw-draft-logits"), toy_limits))
    assert re.match(r"0\.500 of 160 accepted: .*; \d\.\d\d if they were divided", seen.expected)
    assert re.match(r"\d+ accepted \(\d\.\d+, p-value .*\)", seen.seen)


def test_an_undecided_text_is_named_where_a_rule_differs(make_toy, toy_limits):
    (row,) = (row for row in ROWS if row.id == "end-id")
    doubted = observe(row, ProbedEngine(make_toy("end-id", "undecided"), toy_limits))
    assert doubted.verdict == "differs"
    assert "perhaps rounding" in doubted.seen
    assert "rounding" not in observe(row, ProbedEngine(make_toy("end-id"), toy_limits)).seen


@pytest.mark.parametrize(
    ("outputs", "verdict"),
    [
        ({}, "held"),
        ({"output_log_probs": [0.0] * 4, "cum_log_probs": [0.0]}, "held"),
        ({"output_log_probs": [0.0] * 4}, "not applicable"),
        ({"output_log_probs": [0.0] * 4, "cum_log_probs": [7.0]}, "held"),
        ({"output_log_probs": "right", "cum_log_probs": [0.0]}, "differs"),
        ({"output_log_probs": [0.0] * 4, "cum_log_probs": "right"}, "differs"),
    ],
)
def test_log_probs_of_drafts_are_set_where_either_output_is_right(make_toy, toy_limits, outputs, verdict):
    class Told(make_toy):
        def _outputs(self, values, prompt, new, rows, reused):
            found = super()._outputs(values, prompt, new, rows, reused)
            if values.get("return_log_probs"):
                scores = np.array(rows, np.float64)
                said = (scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))[range(len(new)), new]
                right = {"output_log_probs": said, "cum_log_probs": said.sum()}
                del found["output_log_probs"], found["cum_log_probs"]
                for name, told in outputs.items():
                    found[name] = np.asarray(right[name] if told == "right" else told, np.float32)
            return found

    assert verdicts(Told(), toy_limits)["draft-log-probs"] == verdict
