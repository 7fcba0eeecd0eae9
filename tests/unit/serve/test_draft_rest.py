"""A draft engine that keeps failing is left alone, longer each time."""

from trt_spec.serve.draft_rest import FAILURES_BEFORE_REST, FIRST_REST_S, LONGEST_REST_S, DraftRest


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def fail(rest: DraftRest, times: int) -> None:
    for _ in range(times):
        rest.failed()


def test_a_failure_of_one_request_stops_nobody_else():
    rest = DraftRest(Clock())
    fail(rest, FAILURES_BEFORE_REST - 1)
    assert not rest.goes_on
    rest.answered()
    fail(rest, FAILURES_BEFORE_REST - 1)
    assert not rest.goes_on


def test_rests_double_and_are_bounded_and_an_answer_ends_them():
    clock = Clock()
    rest = DraftRest(clock)
    fail(rest, FAILURES_BEFORE_REST)
    lengths = []
    for _ in range(8):
        assert rest.goes_on
        began_s = clock.now_s
        rest.failed()  # of a call that was on its way: the rest is no longer for it
        while rest.goes_on:
            clock.now_s += 0.5
        lengths.append(clock.now_s - began_s)
        rest.failed()
    assert lengths[:3] == [FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S]
    assert lengths[-1] == LONGEST_REST_S
    rest.answered()
    assert not rest.goes_on
    fail(rest, FAILURES_BEFORE_REST - 1)
    assert not rest.goes_on
