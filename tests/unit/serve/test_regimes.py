"""Whether a group drafts: both ways are measured in turns, and the one that is faster for all together stays."""

import itertools

import pytest

from trt_spec.serve.regimes import MAX_HOLD_S, MIN_HOLD_S, MUST_GAIN, TRIAL_FRACTION, Regime

RUNNING = 4
CALL_S = 0.1


class Group:
    """Requests that make calls of CALL_S, and get so many tokens by drafting or not."""

    def __init__(self, regime, drafting, alone):
        self.regime, self.tokens, self.busy_s = regime, {True: drafting, False: alone}, 0.0

    def run(self, seconds):
        """The way that each call took."""
        ways, until_s = [], self.busy_s + seconds
        while self.busy_s < until_s:
            drafts = self.regime.decide(self.busy_s, RUNNING)
            ways.append(drafts)
            self.busy_s += CALL_S / RUNNING
            self.regime.observe(self.tokens[drafts], CALL_S)
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


def test_what_trials_lose_stays_within_its_budget():
    group = Group(Regime(drafts=True), drafting=1, alone=2)
    group.run(MIN_HOLD_S)
    ways = group.run(2000.0)
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
    group.tokens = {True: 2, False: 3}
    group.run(MAX_HOLD_S)
    assert not group.regime.drafts


def test_every_change_begins_an_epoch():
    regime = Regime(drafts=True)
    group = Group(regime, drafting=3, alone=2)
    ways = group.run(30.0)
    assert regime.epoch == sum(a is not b for a, b in itertools.pairwise(ways)) >= 2
