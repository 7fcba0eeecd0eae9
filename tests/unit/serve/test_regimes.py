"""Whether a group drafts: tried where it promises a gain, kept where all together gain, dropped where they lose."""

from trt_spec.serve.regimes import ON_MUST_GAIN, TRIAL_FRACTION, UNPLANNED_MUST_GAIN, Regime

PLAIN_S = 0.02


def run_trial(regime, tokens, seconds, calls=40, running=4, busy_s=1.0):
    """Calls of drafting requests until the regime changes; the time then."""
    for _ in range(calls):
        busy_s += seconds / running
        regime.observe(tokens, seconds)
        if not regime.decide(busy_s, running, PLAIN_S, 1.5, PLAIN_S):
            break
    return busy_s


def test_drafting_waits_for_a_promise():
    regime = Regime()
    assert not regime.decide(0.0, 4, None, None, None)
    assert not regime.decide(0.0, 4, PLAIN_S, ON_MUST_GAIN - 0.01, PLAIN_S)
    assert regime.decide(0.0, 4, PLAIN_S, ON_MUST_GAIN + 0.01, PLAIN_S)


def test_against_the_planners_word_it_takes_a_greater_promise():
    regime = Regime(planned=False)
    assert not regime.decide(0.0, 4, PLAIN_S, UNPLANNED_MUST_GAIN - 0.01, PLAIN_S)
    assert regime.decide(0.0, 4, PLAIN_S, UNPLANNED_MUST_GAIN + 0.01, PLAIN_S)


def test_what_gains_stays():
    regime = Regime()
    regime.decide(1.0, 4, PLAIN_S, 1.5, PLAIN_S)
    run_trial(regime, tokens=3, seconds=0.04)
    assert regime.drafts and not regime.is_on_trial


def test_what_loses_for_all_is_dropped_and_not_tried_again_before_its_cost_is_earned():
    regime = Regime()
    regime.decide(1.0, 4, PLAIN_S, 1.5, PLAIN_S)
    ended_s = run_trial(regime, tokens=3, seconds=0.12)
    assert not regime.drafts and regime.epoch == 2
    lost_s = (ended_s - 1.0) * (1 - 3 / 0.12 * PLAIN_S)
    assert not regime.decide(ended_s + 0.99 * lost_s / TRIAL_FRACTION, 4, PLAIN_S, 9.0, PLAIN_S)
    assert regime.decide(ended_s + 1.01 * lost_s / TRIAL_FRACTION, 4, PLAIN_S, 9.0, PLAIN_S)


def test_a_guess_of_the_target_alone_ends_a_trial_but_does_not_forbid_the_next():
    regime = Regime()
    regime.decide(1.0, 4, PLAIN_S, 1.5, None)
    busy_s = 1.0
    for _ in range(10):
        busy_s += 0.03
        regime.observe(3, 0.12)
        if not regime.decide(busy_s, 4, PLAIN_S, 1.5, None):
            break
    assert not regime.drafts
    assert regime.decide(busy_s, 4, PLAIN_S, 1.5, PLAIN_S)
