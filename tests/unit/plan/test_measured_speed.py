"""The plan's formula over measured times."""

import pytest

from trt_spec.plan.acceptance_model import speedup
from trt_spec.plan.measured_speed import MeasuredSteps, interpolate, predict_speedup, tokens_of_round

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


def test_overhead_is_paid_every_round():
    slower = MeasuredSteps(1, 0.020, STEPS.draft_s, STEPS.verify_s, overhead_s=0.039)
    assert predict_speedup([0.9], slower, 3) == pytest.approx(predict_speedup([0.9], STEPS, 3) / 2)


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
