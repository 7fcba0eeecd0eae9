import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.errors import SpecError
from trt_spec.plan.priors import LARGE_DRAFT, SMALL_DRAFT, SMALL_DRAFT_LONG_PROMPT, choose_acceptance, prior_acceptance

B = 10**9
sizes = st.integers(10**7, 10**12)
prompts = st.integers(1, 131072)


def test_the_source_of_acceptance_is_named():
    sizes_and_prompt = (3 * B, 405 * B, 1024)
    stated = choose_acceptance(*sizes_and_prompt, spec_alpha=0.6, measured_alpha=0.8)
    assert (stated.alpha, stated.low, stated.high, stated.origin) == (0.6, 0.6, 0.6, "spec")
    measured = choose_acceptance(*sizes_and_prompt, measured_alpha=0.8)
    assert (measured.alpha, measured.origin) == (0.8, "measured")
    assert "trtspec verify" in measured.explanation
    guessed = choose_acceptance(*sizes_and_prompt)
    assert guessed == prior_acceptance(*sizes_and_prompt)
    assert guessed.origin == "prior"
    assert "guess" in guessed.explanation
    assert "SqueezeBits" in guessed.explanation


@pytest.mark.parametrize("argument", ["spec_alpha", "measured_alpha"])
@pytest.mark.parametrize("alpha", [-0.01, 1.5, float("nan")])
def test_an_impossible_acceptance_is_a_fault_of_the_input(argument, alpha):
    with pytest.raises(SpecError, match="between 0 and 1"):
        choose_acceptance(B, 70 * B, 1024, **{argument: alpha})


@pytest.mark.parametrize("seen", [SMALL_DRAFT, SMALL_DRAFT_LONG_PROMPT, LARGE_DRAFT])
def test_the_low_bound_passes_through_what_squeezebits_measured(seen):
    prior = prior_acceptance(int(seen.draft_parameters), int(seen.target_parameters), seen.prompt_tokens)
    assert prior.low == pytest.approx(seen.alpha, abs=1e-6)


@given(sizes, sizes, prompts)
def test_bounds_are_ordered_probabilities(draft, target, prompt):
    prior = prior_acceptance(draft, target, prompt)
    assert 0.0 < prior.low <= prior.alpha <= prior.high < 1.0


@given(sizes, sizes, sizes, prompts)
def test_a_larger_draft_is_never_guessed_worse(one, other, target, prompt):
    small, large = sorted((one, other))
    assert prior_acceptance(small, target, prompt).alpha <= prior_acceptance(large, target, prompt).alpha + 1e-12


@given(sizes, sizes, prompts, prompts)
def test_a_longer_prompt_is_never_guessed_better(draft, target, one, other):
    short, long = sorted((one, other))
    assert prior_acceptance(draft, target, long).alpha <= prior_acceptance(draft, target, short).alpha + 1e-12


def test_the_guess_for_a_common_pair():
    """Llama 3.2 1B and Llama 3.1 70B: between SqueezeBits' and NVIDIA's figures for such sizes."""
    prior = prior_acceptance(1_235_814_400, 70_553_706_496, 1024)
    assert (prior.low, prior.high) == (pytest.approx(0.61, abs=0.01), pytest.approx(0.88, abs=0.01))
    assert prior.alpha == pytest.approx(0.75, abs=0.01)
