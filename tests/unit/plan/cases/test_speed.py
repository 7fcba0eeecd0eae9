"""Known failures of others that the speed model must foresee; each test is named after its case."""

import pytest

from trt_spec.plan.acceptance_model import best_draft_len, speedup


def test_b101_best_length_is_known_before_the_first_run():
    """vllm#21278: ten drafted tokens from too large a draft halve the speed."""
    assert best_draft_len(0.7, 0.1, 64) == 4
    assert speedup(0.7, 4, 0.1) == pytest.approx(1.98, abs=0.005)
    assert best_draft_len(0.3, 0.4, 64) == 0
    assert all(speedup(0.3, length, 0.4) < 1.0 for length in range(1, 65))
