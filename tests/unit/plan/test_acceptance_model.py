import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trt_spec.plan.acceptance_model import (
    alpha_for_tokens,
    best_draft_len,
    best_index,
    break_even_alpha,
    expected_tokens,
    expected_tokens_of_rates,
    speedup,
)

probabilities = st.floats(0.0, 1.0)
lengths = st.integers(0, 64)
cost_ratios = st.floats(0.0, 3.0)


@pytest.mark.parametrize(
    ("alpha", "draft_len", "tokens"), [(0.0, 5, 1.0), (0.5, 1, 1.5), (0.5, 3, 1.875), (1.0, 7, 8.0), (0.9, 0, 1.0)]
)
def test_expected_tokens_by_hand(alpha, draft_len, tokens):
    assert expected_tokens(alpha, draft_len) == pytest.approx(tokens, abs=1e-15)


@given(st.floats(0.0, 0.99), lengths)
def test_expected_tokens_is_the_papers_closed_form(alpha, draft_len):
    assert expected_tokens(alpha, draft_len) == pytest.approx((1 - alpha ** (draft_len + 1)) / (1 - alpha), rel=1e-9)


@given(probabilities, probabilities, lengths)
def test_expected_tokens_never_falls_with_acceptance_or_length(one, other, draft_len):
    low, high = sorted((one, other))
    assert 1.0 <= expected_tokens(low, draft_len) <= expected_tokens(high, draft_len) <= draft_len + 1
    assert expected_tokens(low, draft_len) <= expected_tokens(low, draft_len + 1)


def test_rates_of_each_position_may_differ():
    assert expected_tokens_of_rates([0.8, 0.5, 0.25]) == pytest.approx(1 + 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * 0.25)
    assert expected_tokens_of_rates([0.8, 0.0, 1.0]) == pytest.approx(1.8)
    assert expected_tokens_of_rates([]) == 1.0


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(alpha):
    with pytest.raises(ValueError, match="probability"):
        expected_tokens(alpha, 3)
    with pytest.raises(ValueError, match="probability"):
        expected_tokens_of_rates([0.5, alpha])


@given(probabilities, cost_ratios, lengths)
def test_the_best_length_is_the_greatest_of_all(alpha, cost_ratio, longest):
    best = best_draft_len(alpha, cost_ratio, longest)
    gains = [speedup(alpha, length, cost_ratio) for length in range(longest + 1)]
    assert gains[best] == max(gains)
    assert gains.index(max(gains)) == best
    assert gains[best] >= 1.0


@given(st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0]), min_size=1, max_size=20))
def test_the_scan_finds_the_summit_behind_a_valley(values):
    index = best_index(values)
    assert values[index] == max(values)
    assert max(values) not in values[:index]


@given(probabilities, cost_ratios)
def test_some_length_pays_exactly_when_acceptance_exceeds_the_cost_ratio(alpha, cost_ratio):
    assume(abs(alpha - cost_ratio) > 1e-9)  # closer than that, rounding decides
    gains = [speedup(alpha, length, cost_ratio) for length in range(1, 65)]
    assert (max(gains) > 1.0) == (alpha > cost_ratio)


@given(st.integers(1, 64), st.floats(0.01, 0.99))
def test_at_break_even_speculation_costs_nothing(draft_len, cost_ratio):
    alpha = break_even_alpha(draft_len, cost_ratio)
    assert alpha is not None
    assert cost_ratio <= alpha + 1e-12 <= 1.0 + 1e-12
    assert speedup(alpha, draft_len, cost_ratio) == pytest.approx(1.0)
    assert speedup(max(0.0, alpha - 1e-3), draft_len, cost_ratio) < 1.0


def test_a_draft_as_slow_as_the_target_never_pays():
    assert break_even_alpha(4, 1.0) == pytest.approx(1.0)
    assert break_even_alpha(4, 1.01) is None
    assert break_even_alpha(1, 0.3) == pytest.approx(0.3)


@given(probabilities, st.integers(1, 20))
def test_alpha_for_tokens_inverts_expected_tokens(alpha, draft_len):
    tokens = expected_tokens(alpha, draft_len)
    found = alpha_for_tokens(tokens, draft_len)
    assert found is not None
    assert expected_tokens(found, draft_len) == pytest.approx(tokens, rel=1e-12)
    assert alpha_for_tokens(draft_len + 1.001, draft_len) is None
    assert alpha_for_tokens(0.9, draft_len) == 0.0
