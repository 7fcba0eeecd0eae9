"""A draft engine that keeps failing is left alone, longer each time."""

import pytest

from trt_spec.serve.draft_rest import FAILURES_BEFORE_REST, FIRST_REST_S, LONGEST_REST_S, LONGEST_TRIAL_S, DraftRest


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def fail(rest: DraftRest, times: int) -> None:
    for _ in range(times):
        rest.failed()


def test_a_failure_of_one_request_stops_nobody_else():
    rest = DraftRest(8, Clock())
    fail(rest, FAILURES_BEFORE_REST - 1)
    assert rest.lets_try()
    rest.answered()
    fail(rest, FAILURES_BEFORE_REST - 1)
    assert rest.lets_try() and rest.lets_try()


def test_rests_double_and_are_bounded_and_an_answer_ends_them():
    clock = Clock()
    rest = DraftRest(8, clock)
    fail(rest, FAILURES_BEFORE_REST)
    lengths = []
    for _ in range(8):
        assert not rest.lets_try()
        began_s = clock.now_s
        rest.failed()  # of a call that was on its way: the rest is no longer for it
        while not rest.lets_try():
            clock.now_s += 0.5
        lengths.append(clock.now_s - began_s)
        rest.failed()
    assert lengths[:3] == [FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S]
    assert lengths[-1] == LONGEST_REST_S
    rest.answered()
    assert rest.lets_try()
    fail(rest, FAILURES_BEFORE_REST - 1)
    assert rest.lets_try()


def test_behind_a_rest_one_call_tries_and_the_others_wait_for_how_it_ends():
    clock = Clock()
    rest = DraftRest(8, clock)
    fail(rest, FAILURES_BEFORE_REST)
    clock.now_s += FIRST_REST_S
    assert rest.lets_try()
    clock.now_s += 29.0  # it hangs
    assert not rest.lets_try()
    rest.failed()
    clock.now_s += 2 * FIRST_REST_S
    assert rest.lets_try() and not rest.lets_try()
    clock.now_s += LONGEST_TRIAL_S  # and this one never tells
    assert rest.lets_try() and not rest.lets_try()
    rest.answered()
    assert rest.lets_try() and rest.lets_try()


def test_nobody_tries_while_too_many_calls_have_not_come_back():
    rest = DraftRest(2, Clock())
    calls = [rest.watch(lambda: "said") for _ in range(3)]
    for call in calls[:2]:
        assert rest.lets_try()
        call.give_up()
    assert not rest.lets_try()
    assert calls[0]() == "said"  # after all
    assert rest.lets_try()
    calls[2].give_up()
    assert not rest.lets_try()


def test_a_call_that_comes_back_in_the_moment_of_being_given_up_is_not_missing():
    rest = DraftRest(1, Clock())
    call = rest.watch(lambda: "said")
    call()
    call.give_up()
    assert rest.lets_try()


def test_a_call_that_fails_has_come_back():
    rest = DraftRest(1, Clock())
    call = rest.watch(lambda: 1 / 0)
    call.give_up()
    with pytest.raises(ZeroDivisionError):
        call()
    assert rest.lets_try()
