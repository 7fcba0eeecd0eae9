"""Whether a group drafts: both ways are measured in turns, and the one that is faster for all together stays."""

import itertools

import pytest

from trt_spec.serve.regimes import MAX_HOLD_S, MIN_HOLD_S, MUST_GAIN, TRIAL_FRACTION, WINDOW_CALLS, Regime

RUNNING = 4
CALL_S = 0.1


class Group:
    """Requests that make calls of so many seconds, and get so many tokens by drafting or not."""

    def __init__(self, regime, drafting, alone, call_s=CALL_S):
        self.regime, self.tokens = regime, {True: drafting, False: alone}
        self.call_s = call_s

    def run(self, seconds):
        """The way that each call took."""
        ways, until_s = [], self.regime.busy_s + seconds
        while self.regime.busy_s < until_s:
            drafts = self.regime.decide(RUNNING)
            ways.append(drafts)
            self.regime.busy_s += self.call_s / RUNNING
            self.regime.observe(self.tokens[drafts], self.call_s)
        return ways


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("drafting, alone, best", [(3, 2, True), (2, 3, False)])
def test_the_faster_way_is_found_whatever_the_planner_said(planned, drafting, alone, best):
    group = Group(Regime(drafts=planned), drafting, alone)
    ways = group.run(MIN_HOLD_S)
    assert ways[0] is planned and set(ways) == {True, False}
    assert all(way is best for way in ways[-100:])


@pytest.mark.parametrize("planned", [True, False])
def test_drafting_for_a_slight_gain_is_not_worth_it(planned):
    slightly = 1 + (MUST_GAIN - 1) / 2
    ways = Group(Regime(drafts=planned), drafting=3 * slightly, alone=3).run(100.0)
    assert ways.count(False) > 0.8 * len(ways) and set(ways) == {True, False}


@pytest.mark.parametrize("call_s", [CALL_S, 5.0])
def test_what_trials_lose_stays_within_its_budget(call_s):
    group = Group(Regime(drafts=True), drafting=1, alone=2, call_s=call_s)
    group.run(30 * call_s)
    ways = group.run(20000 * call_s)
    assert True in ways
    assert 0.5 * ways.count(True) / len(ways) <= TRIAL_FRACTION


def test_a_verdict_that_is_confirmed_stands_longer_up_to_a_limit():
    group = Group(Regime(drafts=True), drafting=2, alone=2)
    ways = group.run(20 * MAX_HOLD_S)
    trials = [i for i, (a, b) in enumerate(itertools.pairwise(ways)) if a and not b]
    holds_s = [(b - a) * CALL_S / RUNNING for a, b in itertools.pairwise(trials)]
    assert holds_s[0] < 4 * MIN_HOLD_S < MAX_HOLD_S < holds_s[-1] < 1.1 * MAX_HOLD_S


def test_a_change_of_what_pays_is_followed():
    group = Group(Regime(drafts=True), drafting=3, alone=2)
    group.run(50.0)
    for best, hold_s in ((False, MAX_HOLD_S), (True, 4 * MIN_HOLD_S)):
        group.tokens = {best: 3, not best: 2}
        group.run(hold_s)
        assert group.regime.drafts is best


def test_a_trial_takes_as_many_calls_as_tell():
    ways = Group(Regime(drafts=True), drafting=3, alone=2).run(MIN_HOLD_S)
    assert ways.count(False) == WINDOW_CALLS * RUNNING == ways.index(False)


def test_every_change_begins_an_epoch():
    regime = Regime(drafts=True)
    group = Group(regime, drafting=3, alone=2)
    ways = group.run(30.0)
    assert regime.epoch == sum(a is not b for a, b in itertools.pairwise(ways)) >= 2
