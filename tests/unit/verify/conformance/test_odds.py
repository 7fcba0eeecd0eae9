import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.verify.conformance.odds import binomial_p_value


def test_known_values():
    assert binomial_p_value(5, 10, 0.5) == pytest.approx(1.0)
    assert binomial_p_value(0, 10, 0.5) == pytest.approx(2 / 1024)
    assert binomial_p_value(10, 10, 0.5) == pytest.approx(2 / 1024)
    assert binomial_p_value(9, 10, 0.5) == pytest.approx(22 / 1024)
    assert binomial_p_value(3, 3, 0.1) == pytest.approx(0.001)
    assert [binomial_p_value(k, 4, 1.0) for k in (3, 4)] == [0.0, 1.0]
    assert [binomial_p_value(k, 4, 0.0) for k in (0, 1)] == [1.0, 0.0]


@given(st.integers(1, 60), st.floats(0.01, 0.99))
def test_it_sums_all_counts_that_are_as_unlikely(trials, probability):
    masses = [math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in range(trials + 1)]
    for count in (0, trials // 2, trials):
        exact = sum(mass for mass in masses if mass <= masses[count] * (1 + 1e-7))
        assert binomial_p_value(count, trials, probability) == pytest.approx(exact, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(("count", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_impossible_counts_are_errors(count, trials):
    with pytest.raises(ValueError, match="no count"):
        binomial_p_value(count, trials, 0.5)
