"""The policy of a step, on numbers alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.local_backend.scheduler import Pending, StepLimits, default_limits, plan_step

LIMITS = st.builds(
    lambda short, more, chunk: StepLimits(short, short + more, chunk),
    st.integers(1, 9),
    st.integers(0, 60),
    st.integers(1, 40),
)
PENDING = st.lists(st.tuples(st.integers(1, 300), st.integers(-1, 5)), min_size=1, max_size=10).map(
    lambda rows: [Pending(tokens, served, arrival) for arrival, (tokens, served) in enumerate(rows)]
)


@given(PENDING, LIMITS)
def test_a_step_keeps_its_limits(pending, limits):
    shares = plan_step(pending, limits)
    assert shares
    assert len({share.which for share in shares}) == len(shares)
    assert sum(share.tokens for share in shares) <= limits.max_step_tokens
    chunks = 0
    for which, tokens in shares:
        assert 0 < tokens <= pending[which].tokens
        if pending[which].tokens <= limits.short_tokens:
            assert tokens == pending[which].tokens
        else:
            chunks += tokens
    assert chunks <= limits.chunk_tokens


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), LIMITS)
def test_nobody_waits_longer_than_all_others_take_turns(prompts, limits):
    """Everybody decodes for ever behind his prompt; each is served at least once in as many steps as there are."""
    left, served = list(prompts), [-1] * len(prompts)
    for step in range(6 * len(prompts)):
        pending = [Pending(max(1, tokens), served[i], i) for i, tokens in enumerate(left)]
        for which, tokens in plan_step(pending, limits):
            left[which] -= tokens
            served[which] = step
        assert step - min(served) <= len(prompts)


def test_a_long_prompt_delays_the_others_by_one_chunk_a_step():
    limits = default_limits(max_batch_size=8, max_draft_len=4)
    streams = [Pending(5 if i % 2 else 1, 3, i) for i in range(7)]
    shares = plan_step([*streams, Pending(1000, -1, 7)], limits)
    assert sorted((share.which, share.tokens) for share in shares) == [
        *((i, stream.tokens) for i, stream in enumerate(streams)),
        (7, limits.chunk_tokens),
    ]


def test_two_prompts_take_turns():
    limits = default_limits(max_batch_size=8, max_draft_len=0)
    assert plan_step([Pending(900, -1, 0), Pending(900, -1, 1)], limits) == [(0, limits.chunk_tokens)]
    assert plan_step([Pending(772, 0, 0), Pending(900, -1, 1)], limits) == [(1, limits.chunk_tokens)]


def test_the_end_of_a_prompt_leaves_the_rest_of_the_chunk_to_the_next():
    limits = StepLimits(short_tokens=1, max_step_tokens=100, chunk_tokens=50)
    assert plan_step([Pending(20, -1, 0), Pending(90, -1, 1)], limits) == [(0, 20), (1, 30)]


@pytest.mark.parametrize("values", [(0, 10, 10), (5, 4, 10), (5, 5, 0)])
def test_limits_that_could_starve_somebody_are_refused(values):
    with pytest.raises(ValueError, match="in turn"):
        StepLimits(*values)


def test_whole_inputs_count_against_max_num_tokens():
    """Eight cached rounds of 40 tokens, 3 of them new: with a bound of 100 two fit a step, as in TensorRT-LLM."""
    rounds = [Pending(3, -1, i, counted_tokens=40) for i in range(8)]
    unbound = default_limits(max_batch_size=8, max_draft_len=2)
    bound = default_limits(max_batch_size=8, max_draft_len=2, max_num_tokens=100)
    assert [share.which for share in plan_step(rounds, unbound)] == list(range(8))
    assert [share.which for share in plan_step(rounds, bound)] == [0, 1]


def test_who_does_not_fit_max_num_tokens_ends_the_step_and_goes_first_in_the_next():
    limits = default_limits(max_batch_size=8, max_draft_len=2, max_num_tokens=10)
    pending = [Pending(2, -1, 0, counted_tokens=6), Pending(2, -1, 1, counted_tokens=6), Pending(1, -1, 2)]
    assert [share.which for share in plan_step(pending, limits)] == [0]
    later = [Pending(2, 5, 0, counted_tokens=6), Pending(2, -1, 1, counted_tokens=6), Pending(1, 5, 2, 5)]
    assert [share.which for share in plan_step(later, limits)] == [1]
