"""From loads to points, break-even and recommended lengths."""

import pytest

from trt_spec.errors import StepFailed
from trt_spec.plan.measured_speed import MeasuredSteps
from trt_spec.verify.bench.assemble import (
    assemble_points,
    find_break_even,
    find_point,
    measured_rates,
    recommend_lengths,
)
from trt_spec.verify.bench.settings import Setting
from trt_spec.verify.bench.verdict import check_measured, judge_bench

PLAIN, DRAFTED = Setting(num_draft_tokens=0), Setting(num_draft_tokens=4)


def points_of(loads, steps=()):
    return assemble_points(loads, {setting: frozenset({"draft_len"}) for setting in loads}, steps, 0)


def test_speed_up_is_over_the_same_load_without_drafts(load_of):
    other = Setting(num_draft_tokens=0, concurrency=2)
    loads = {PLAIN: [load_of(0.02)] * 2, other: [load_of(0.5)] * 2, DRAFTED: [load_of(0.01, 4, 3)] * 2}
    point = find_point(points_of(loads), DRAFTED)
    assert point.decode_speedup.value == pytest.approx(2.0)
    assert 1.5 < point.speedup.value < 2.0  # the first token costs the same on both sides
    assert find_point(points_of(loads), PLAIN).speedup is None


def test_without_a_plain_load_there_is_no_speed_up(load_of):
    assert find_point(points_of({DRAFTED: [load_of(0.01, 4, 3)]}), DRAFTED).speedup is None


def test_a_block_that_only_one_side_has_is_left_out(load_of):
    loads = {PLAIN: [load_of(0.02), load_of(0.02)], DRAFTED: [load_of(0.01, 4, 3)]}
    assert find_point(points_of(loads), DRAFTED).decode_speedup.value == pytest.approx(2.0)


def test_lost_requests_stay_in_the_point(load_of):
    point = points_of({PLAIN: [load_of(0.02, failed=2)]})[0]
    assert (point.load.requests, point.load.answered, point.load.failed) == (6, 4, 2)


def test_the_prediction_uses_the_rates_of_the_longest_drafts(load_of):
    short = Setting(num_draft_tokens=2)
    loads = {PLAIN: [load_of(0.02)], short: [load_of(0.01, 2, 2)], DRAFTED: [load_of(0.01, 4, 3)]}
    assert measured_rates(loads) == (1.0, 1.0, 1.0, 0.0)
    steps = (MeasuredSteps(1, 0.02, {1: 0.005, 4: 0.005}, {1: 0.015, 4: 0.015}),)
    points = points_of(loads, steps)
    assert find_point(points, short).predicted_decode_speedup == pytest.approx(3.0)
    assert find_point(points, DRAFTED).predicted_decode_speedup == pytest.approx(4.0)
    assert find_point(points, PLAIN).predicted_decode_speedup is None


def test_other_loads_and_systems_are_not_predicted(load_of):
    settings = [DRAFTED, Setting(num_draft_tokens=4, concurrency=2), Setting("int4", 4), Setting(num_draft_tokens=None)]
    steps = (MeasuredSteps(1, 0.02, {1: 0.005}, {1: 0.015}),)
    points = points_of({setting: [load_of(0.01, 4, 3)] for setting in settings}, steps)
    assert [point.predicted_decode_speedup is not None for point in points] == [True, False, False, False]


def test_the_fastest_length_is_recommended_and_none_where_all_lose(make_report):
    report = make_report()
    assert {item.concurrency: item.num_draft_tokens for item in report.recommendations} == {1: 3, 2: 2, 4: 2, 8: 0}


def test_a_gain_within_chance_recommends_no_drafts(load_of):
    plain, drafted = [load_of(0.020), load_of(0.030)], [load_of(0.022, 4, 3), load_of(0.022, 4, 3)]
    (found,) = recommend_lengths(points_of({PLAIN: plain, DRAFTED: drafted}))
    assert found.speedup.value > 1
    assert not found.speedup.significant
    assert found.num_draft_tokens == 0


def test_break_even_lies_between_the_loads_around_it(make_report):
    report = make_report()
    assert 4 < report.break_even_concurrency < 8
    assert find_break_even(report.points, 7) is None


def test_break_even_of_drafts_that_always_lose_is_the_lowest_load(load_of):
    points = points_of({PLAIN: [load_of(0.02)] * 2, DRAFTED: [load_of(0.03, 4, 0)] * 2})
    assert find_break_even(points, 4) == 1.0


def test_the_verdict_says_by_how_much_and_until_when(make_report):
    verdict = make_report().verdict
    assert "faster with 1 request at once, 3 tokens drafted" in verdict
    assert "break even at" in verdict
    assert "target alone is best with 8" in verdict
    assert "Ended early" in judge_bench((), None, 4, True)


def test_a_setting_without_any_answer_is_an_error(make_report, load_of):
    points = points_of({PLAIN: [load_of(0.02, failed=6)]})
    with pytest.raises(StepFailed, match=r"Not one request was answered in 1 of 1 settings.*refused"):
        check_measured(make_report(points=points))
    check_measured(make_report(points=points, interrupted=True))


def test_the_prediction_reckons_with_prompts_by_the_length_and_number_of_answers(load_of):
    plain, drafted = Setting(num_draft_tokens=0, concurrency=2), Setting(num_draft_tokens=4, concurrency=2)
    loads = {plain: [load_of(0.02)] * 2, drafted: [load_of(0.01, 4, 4)] * 2, DRAFTED: [load_of(0.01, 4, 4)]}
    steps = (MeasuredSteps(2, 0.02, {4: 0.05}, {4: 0.05}, read_s=0.1, draft_read_s=0.05),)
    # 47 tokens behind the first, 3 answers a user: the other's prompt comes 5/6 times an answer
    expected = (47 * 0.02 + 5 / 6 * 0.1) / (47 / 5 * 0.1 + 5 / 6 * 0.15 + 0.05)
    assert find_point(points_of(loads, steps), drafted).predicted_decode_speedup == pytest.approx(expected)
