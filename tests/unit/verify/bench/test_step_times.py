"""Timing the engines of the fake Triton of tests/unit/verify: which calls are made. How long they take says nothing."""

import pytest

from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL
from trt_spec.verify.bench.step_times import measure_reading, measure_steps, reads_drafts

PROMPTS = ((11, 12, 13), (21, 22, 23, 24))


@pytest.fixture
def engine_calls(fake_triton):
    """engine_calls(model) -> (ids, tokens asked for, drafts) of each call to that engine."""

    def calls(model):
        return [
            (
                tuple(inputs["input_ids"].ravel().tolist()),
                int(inputs["request_output_len"].ravel()[0]),
                tuple(inputs["draft_input_ids"].ravel().tolist()) if "draft_input_ids" in inputs else (),
            )
            for name, inputs in fake_triton.requests
            if name == model
        ]

    return calls


def test_prompts_are_read_twice_in_order_and_followed_by_an_answer(fake_triton, engine_calls):
    target_s, draft_s = measure_reading(fake_triton.url, PROMPTS, drafts_from_model=True, deadline_s=10)
    assert target_s >= 0 and draft_s >= 0
    for model in (TARGET_MODEL, DRAFT_MODEL):
        asked = [ids for ids, _, _ in engine_calls(model)]
        assert asked[::2] == [*PROMPTS, *PROMPTS]
        assert [ids[:-1] for ids in asked[1::2]] == [*PROMPTS, *PROMPTS]


def test_without_a_draft_model_it_reads_nothing(fake_triton, engine_calls):
    assert measure_reading(fake_triton.url, PROMPTS, drafts_from_model=False, deadline_s=10)[1] == 0.0
    assert engine_calls(DRAFT_MODEL) == []


def test_rounds_follow_the_targets_own_text(fake_triton, engine_calls):
    assert not reads_drafts(fake_triton.url, 10)
    fake_triton.behaviour.engine_dtypes = {"draft_input_ids": "INT32"}
    assert reads_drafts(fake_triton.url, 10)
    steps = measure_steps(fake_triton.url, PROMPTS, 1, (1, 3), reading_s=(0.5, 0.25), deadline_s=10)
    assert set(steps.draft_s) == set(steps.verify_s) == {1, 3}
    assert (steps.batch, steps.read_s, steps.draft_read_s) == (1, 0.5, 0.25)
    drafted = {(ids, tokens) for ids, tokens, _ in engine_calls(DRAFT_MODEL)}
    verified = [(ids, tokens - 1) for ids, tokens, drafts in engine_calls(TARGET_MODEL) if drafts]
    assert set(verified) == drafted
    assert {length for _, length in drafted} == {1, 3}
    assert {ids[:3] for ids, _ in drafted} == {PROMPTS[0], PROMPTS[1][:3]}
