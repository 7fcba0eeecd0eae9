"""The plan's formula over measured times."""

import pytest

from trt_spec.plan.acceptance_model import speedup
from trt_spec.plan.measured_speed import (
    Answers,
    MeasuredSteps,
    average_steps,
    interpolate,
    predict_speedup,
    tokens_of_round,
)

STEPS = MeasuredSteps(batch=1, plain_token_s=0.020, draft_s={1: 0.005, 5: 0.025}, verify_s={1: 0.022, 5: 0.026})


def test_without_extra_cost_it_is_leviathans_gain():
    steps = MeasuredSteps(1, 1.0, {1: 0.1, 8: 0.8}, {1: 1.0, 8: 1.0})
    for length in range(1, 9):
        assert predict_speedup([0.8], steps, length) == pytest.approx(speedup(0.8, length, 0.1))


def test_a_round_by_hand():
    # 3 tokens drafted: 1 + 0.9 + 0.9*0.8 + 0.9*0.8*0.5 = 2.98 tokens in 15 + 24 ms, against 20 ms a token
    assert predict_speedup([0.9, 0.8, 0.5], STEPS, 3) == pytest.approx(2.98 * 0.020 / 0.039)


def test_length_zero_is_the_target_alone():
    assert predict_speedup([0.9, 0.8], STEPS, 0) == 1.0


def test_one_user_waits_for_the_draft_engine_to_read_the_prompt():
    # 10 tokens in 2 rounds of 5 at 25 + 26 ms, and 98 ms before them, against 10 of 20 ms; the target's reading is over
    steps = MeasuredSteps(1, 0.020, {4: 0.025}, {4: 0.026}, read_s=9.0, draft_read_s=0.098)
    assert predict_speedup([1.0], steps, 4, Answers(10, 6)) == pytest.approx(0.200 / 0.200)
    assert predict_speedup([1.0], steps, 4) == pytest.approx(0.100 / 0.051)


def test_users_wait_for_the_prompts_of_the_others_on_both_sides():
    # 3 others: 3 prompts an answer of 10 tokens, but half of them in the first of 2 answers: 2.25 on average
    steps = MeasuredSteps(4, 0.020, {4: 0.100}, {4: 0.150}, read_s=0.2, draft_read_s=0.1)
    plain_s, drafted_s = 0.200 + 2.25 * 0.2, 2 * 0.250 + 2.25 * 0.3 + 0.1
    assert predict_speedup([1.0], steps, 4, Answers(10, 2)) == pytest.approx(plain_s / drafted_s)
    assert predict_speedup([1.0], steps, 0, Answers(10, 2)) == 1.0


def test_positions_beyond_the_measured_ones_repeat_the_last():
    assert tokens_of_round([0.9, 0.5], 4) == pytest.approx(1 + 0.9 + 0.45 + 0.225 + 0.1125)
    with pytest.raises(ValueError, match="no acceptance"):
        tokens_of_round([], 2)


@pytest.mark.parametrize(("at", "value"), [(1, 10.0), (3, 20.0), (5, 30.0), (7, 40.0)])
def test_times_lie_on_the_line_through_their_neighbours(at, value):
    assert interpolate({1: 10.0, 5: 30.0}, at) == pytest.approx(value)


def test_scattered_times_never_give_less_than_was_measured():
    assert interpolate({4: 10.0, 5: 2.0}, 9) == 2.0
    assert interpolate({4: 10.0}, 9) == 10.0
    with pytest.raises(ValueError, match="no time"):
        interpolate({}, 1)


def test_steps_of_several_blocks_are_averaged():
    slow = MeasuredSteps(1, 0.040, {1: 0.015, 5: 0.075}, {1: 0.044, 5: 0.052}, read_s=0.2, draft_read_s=0.4)
    mean = average_steps([STEPS, slow])
    assert (mean.plain_token_s, mean.read_s, mean.draft_read_s) == pytest.approx((0.030, 0.1, 0.2))
    assert mean.draft_s == pytest.approx({1: 0.010, 5: 0.050})
    assert mean.verify_s == pytest.approx({1: 0.033, 5: 0.039})
    with pytest.raises(ValueError, match="no step"):
        average_steps([])
