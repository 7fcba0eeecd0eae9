"""The adaptive draft length in simulated time: never much below the better of no drafts and the best fixed length."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.draft_ahead import AheadTrial
from trt_spec.serve.draft_length import PROBE_TOKENS, SharedCosts
from trt_spec.serve.drafting import FixedLength, RoundOutcome

from .engine_simulator import CPU, GPU, Simulation, Traffic

MAX_LEN = 8
FIXED_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8)
PLAIN_TOKENS = 32
REQUESTS = {1: 16, 2: 24, 4: 48, 8: 80}
MACHINES = {"cpu": CPU, "gpu": GPU}
ACCEPTANCE = {"easy": 0.95, "middling": 0.6, "hopeless": 0.0}
TABLES = {"cpu": "4,4,2,0,0,0,0,0", "gpu": "5,5,5,5,4,4,4,4"}


def always(rate):
    return lambda number: rate


def simulate_fixed(machine, length, traffic, concurrency):
    simulation = Simulation(machine, lambda: FixedLength(length, "model", PLAIN_TOKENS), traffic, concurrency)
    return simulation.run().tokens_per_s


def simulate(machine, table, traffic, concurrency, *, shared=None, sources=("model",), seed=0, **noise):
    shared = shared or SharedCosts(table)
    follow = lambda: shared.follow(sources, MAX_LEN, False)  # noqa: E731
    return Simulation(machine, follow, traffic, concurrency, seed=seed, **noise).run()


@cache
def best_fixed(machine, rate, concurrency):
    """Tokens/s of the best length, off included; a steady state needs fewer requests than a cold start."""
    traffic = Traffic(always(rate), requests=max(12, 4 * concurrency))
    return max(simulate_fixed(MACHINES[machine], length, traffic, concurrency) for length in FIXED_LENGTHS)


@pytest.mark.parametrize("concurrency", REQUESTS)
@pytest.mark.parametrize("draft", ACCEPTANCE)
@pytest.mark.parametrize("machine", MACHINES)
def test_from_a_cold_start_it_keeps_up_with_the_best_fixed_length(machine, draft, concurrency):
    rate = ACCEPTANCE[draft]
    traffic = Traffic(always(rate), requests=REQUESTS[concurrency])
    run = simulate(MACHINES[machine], TABLES[machine], traffic, concurrency)
    assert run.tokens_per_s >= 0.95 * best_fixed(machine, rate, concurrency)


@pytest.mark.parametrize("machine, concurrency", [("cpu", 1), ("gpu", 2), ("gpu", 8)])
def test_noisy_times_do_not_lead_it_astray(machine, concurrency):
    traffic = Traffic(always(0.95), requests=REQUESTS[concurrency])
    run = simulate(MACHINES[machine], TABLES[machine], traffic, concurrency, jitter=0.3)
    assert run.tokens_per_s >= 0.93 * best_fixed(machine, 0.95, concurrency)


def test_each_request_finds_its_own_length():
    """Half of the requests have a draft that is never right: no length fits both."""
    traffic = Traffic(lambda number: 0.95 * (number % 4 < 2), requests=24)
    best = max(simulate_fixed(GPU, length, traffic, 2) for length in FIXED_LENGTHS)
    assert simulate(GPU, TABLES["gpu"], traffic, 2).tokens_per_s > 1.15 * best


@pytest.mark.parametrize("before, after", [(0.95, 0.0), (0.0, 0.95)])
def test_a_change_of_traffic_is_followed(before, after):
    shared = SharedCosts(TABLES["cpu"])
    simulate(CPU, "", Traffic(always(before), requests=12), 1, shared=shared)
    run = simulate(CPU, "", Traffic(always(after), requests=12), 1, shared=shared, seed=1)
    assert run.tokens_per_s >= 0.93 * best_fixed("cpu", after, 1)


def test_a_planner_that_expected_no_gain_is_put_right():
    traffic = Traffic(always(0.95), requests=24)
    assert simulate(GPU, "0", traffic, 2).tokens_per_s > 0.9 * best_fixed("gpu", 0.95, 2)


def test_a_planner_that_expected_a_gain_is_put_right():
    traffic = Traffic(always(0.0), requests=40)
    assert simulate(CPU, "8", traffic, 8).tokens_per_s > 0.93 * best_fixed("cpu", 0.0, 8)


def test_the_next_round_follows_a_change_of_load():
    shared = SharedCosts(TABLES["cpu"])
    for concurrency in (8, 1):
        simulate(CPU, "", Traffic(always(0.95), requests=3 * concurrency), concurrency, shared=shared)
    policy = shared.follow(("model",), MAX_LEN, False)
    lengths = [
        policy.plan(running=running, room_tokens=100, ngram_tokens=0, cold_tokens=1).length for running in (1, 8, 1)
    ]
    assert lengths[1] <= PROBE_TOKENS < min(lengths[0], lengths[2])


def test_probes_of_a_hopeless_draft_stay_within_their_budget():
    shared = SharedCosts("4")
    simulate(CPU, "", Traffic(always(0.0), requests=4), 1, shared=shared)
    plain_s = 1 / simulate_fixed(CPU, 0, Traffic(always(0.0), requests=4), 1)
    traffic = Traffic(always(0.0), requests=48)
    run = simulate(CPU, "", traffic, 1, shared=shared)
    assert run.draft_calls >= 5
    assert run.seconds < 1.02 * plain_s * run.tokens


def test_a_long_unseen_prompt_is_not_read_for_the_sake_of_a_few_tokens():
    shared = SharedCosts(TABLES["cpu"])
    simulate(CPU, "", Traffic(always(0.95), requests=8, prompt_tokens=100), 1, shared=shared)
    lengths = {
        room: shared.follow(("model",), MAX_LEN, False)
        .plan(running=1, room_tokens=room, ngram_tokens=0, cold_tokens=500)
        .length
        for room in (16, 1000)
    }
    assert lengths[16] == 0 and lengths[1000] > 0


@pytest.mark.parametrize("rate, least, most", [(0.9, 1.25, 9.0), (0.0, 0.93, 1.01)])
def test_look_up_is_used_where_it_is_right(rate, least, most):
    traffic = Traffic(always(0.0), requests=12, n_gram=always(rate), match=0.4)
    off = simulate_fixed(CPU, 0, traffic, 1)
    assert least * off <= simulate(CPU, "4", traffic, 1, sources=("ngram",)).tokens_per_s <= most * off


def test_auto_takes_the_better_source():
    """The model drafts well, and look-up, which costs less, is right where it finds something; then the other way."""
    for model, look_up in ((0.9, 0.9), (0.9, 0.0), (0.0, 0.9)):
        traffic = Traffic(always(model), requests=12, n_gram=always(look_up), match=0.4)
        alone = [simulate(CPU, "4", traffic, 1, sources=(source,)).tokens_per_s for source in ("model", "ngram")]
        auto = simulate(CPU, "4", traffic, 1, sources=("model", "ngram")).tokens_per_s
        assert auto > 0.93 * max(alone)


def test_a_probe_whose_request_is_gone_is_forgotten():
    shared = SharedCosts("0")
    gone = shared.follow(("model",), MAX_LEN, False)
    while not (plan := gone.plan(running=2, room_tokens=50, ngram_tokens=0, cold_tokens=1)).length:
        gone.observe(RoundOutcome(plan, 2, 0, 0, plan.plain_tokens, 0.0, 0.02 * plan.plain_tokens, 1))
    run = simulate(GPU, "0", Traffic(always(0.95), requests=24), 2, shared=shared)
    assert run.tokens_per_s > 0.8 * best_fixed("gpu", 0.95, 2)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), sources=st.sampled_from([("model",), ("ngram",), ("model", "ngram")]), ahead=st.booleans())
def test_plans_keep_to_what_there_is(data, sources, ahead):
    """Whatever comes of its rounds, also none of what was asked for."""
    shared = SharedCosts("3,2,0", allow_ahead=ahead)
    policy = shared.follow(sources, MAX_LEN, data.draw(st.booleans()))
    for _ in range(data.draw(st.integers(1, 40))):
        running, room = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 40))
        matched = data.draw(st.integers(0, 12))
        plan = policy.plan(running=running, room_tokens=room, ngram_tokens=matched, cold_tokens=3)
        assert plan.length <= min(MAX_LEN, room - 1) and plan.source in (*sources, "model")
        assert 1 <= plan.plain_tokens <= room if plan.length == 0 else plan.source in sources
        assert plan.source == "model" or plan.length <= matched
        assert ahead or not plan.ahead
        drafted = data.draw(st.integers(0, plan.length))
        accepted = data.draw(st.integers(0, drafted))
        new = data.draw(st.integers(accepted, accepted + 1)) if plan.length else plan.plain_tokens
        seconds = data.draw(st.floats(0.0, 10.0))
        policy.observe(RoundOutcome(plan, running, drafted, accepted, new, seconds, seconds, 3))


@pytest.mark.parametrize("table", ["", "4,", "a", "-1", "1.5"])
def test_a_table_that_is_none_is_refused(table):
    with pytest.raises(ValueError, match="draft_len_by_running"):
        SharedCosts(table)


def simulated_rounds(policy, shared, ahead_factor, rounds=80):
    """Rounds of 5 tokens in 40 ms, times ``ahead_factor`` where the draft model went on meanwhile."""
    plans = []
    for _ in range(rounds):
        plan = policy.plan(running=1, room_tokens=10**6, ngram_tokens=0, cold_tokens=2)
        plans.append(plan)
        seconds = (0.01 + 0.005 * plan.length) * (ahead_factor if plan.ahead else 1.0)
        policy.observe(
            RoundOutcome(plan, 1, plan.length, plan.length, plan.length + 1, seconds / 2, seconds / 2, 2)
            if plan.length
            else RoundOutcome(plan, 1, 0, 0, plan.plain_tokens, 0.0, 0.03 * plan.plain_tokens, 2)
        )
    return plans


@pytest.mark.parametrize("factor, used", [(0.8, True), (1.0, False), (1.3, False)])
def test_drafting_ahead_is_tried_and_kept_only_where_rounds_get_shorter(factor, used):
    shared = SharedCosts("4", allow_ahead=True)
    plans = simulated_rounds(shared.follow(("model",), MAX_LEN, False), shared, factor)
    assert any(plan.ahead for plan in plans)
    assert all(plan.ahead == used for plan in plans[-20:])


def test_a_burst_of_load_does_not_make_drafting_ahead_look_good():
    trial = AheadTrial()
    for round_number in range(40):
        ahead = trial.wants(float(round_number))
        slow = 5.0 if round_number < 8 else 1.0
        trial.observe(ahead, slow * (1.3 if ahead else 1.0), float(round_number))
    assert not trial.wants(40.0) and trial.ratio == 1.0
