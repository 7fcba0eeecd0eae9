"""Where a plan's acceptance comes from: the spec, a measured report, or a prior by the sizes of draft and target.

The prior is a rough guess with wide bounds, meant to tell "surely pays" from "surely does not" before anything runs:

    low   = line through SqueezeBits' two measurements of one 70B target, over the logarithm of the size ratio
    high  = line through the alphas fitted to NVIDIA's 405B rows, likewise
    alpha = the middle of the two

each less ``FALL_PER_DOUBLING`` for every doubling of the prompt beyond 1024 tokens. Measure to know: `trtspec verify`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trt_spec.errors import SpecError

Origin = Literal["spec", "measured", "prior"]

PARAMETERS_70B, PARAMETERS_405B = 70.55e9, 405.85e9


@dataclass(frozen=True)
class Observation:
    """An acceptance seen elsewhere; sizes in parameters, prompt length in tokens."""

    draft_parameters: float
    target_parameters: float
    prompt_tokens: int | None
    alpha: float
    source: str

    @property
    def size_ratio(self) -> float:
        """Parameters of the draft / parameters of the target."""
        return self.draft_parameters / self.target_parameters


# An acceptance rate in the article, taken as alpha: if it is accepted/drafted, alpha is higher. Secondary copies.
SQUEEZEBITS = "SqueezeBits, vLLM vs TensorRT-LLM #11 (2024-12-09), Llama 3.1 70B, acceptance rate"
SMALL_DRAFT = Observation(0.5e9, PARAMETERS_70B, 1024, 0.535, SQUEEZEBITS)
SMALL_DRAFT_LONG_PROMPT = Observation(0.5e9, PARAMETERS_70B, 2048, 0.509, SQUEEZEBITS)
LARGE_DRAFT = Observation(8.03e9, PARAMETERS_70B, 1024, 0.765, SQUEEZEBITS)

# Not measured: the alpha at which the speed model meets NVIDIA's published tokens/s (docs/explanation/speed-model.md).
NVIDIA = "fitted to NVIDIA's tokens/s (developer blog, 2024-12), not measured"
FITTED_1B_OF_405B = Observation(1.236e9, PARAMETERS_405B, None, 0.835, NVIDIA)
FITTED_3B_OF_405B = Observation(3.213e9, PARAMETERS_405B, None, 0.872, NVIDIA)
FITTED_8B_OF_405B = Observation(8.03e9, PARAMETERS_405B, None, 0.887, NVIDIA)

FALL_PER_DOUBLING = SMALL_DRAFT.alpha - SMALL_DRAFT_LONG_PROMPT.alpha
REFERENCE_PROMPT_TOKENS = 1024
LOWEST_ALPHA, HIGHEST_ALPHA = 0.05, 0.97  # a guess claims neither never nor always


@dataclass(frozen=True)
class Acceptance:
    """Probability that a drafted token is accepted, given that all before it were, with bounds, and its origin."""

    alpha: float
    low: float
    high: float
    origin: Origin
    explanation: str


def choose_acceptance(
    draft_parameters: int,
    target_parameters: int,
    prompt_tokens: int,
    *,
    spec_alpha: float | None = None,
    measured_alpha: float | None = None,
) -> Acceptance:
    """The acceptance a plan reckons with: what the spec says, else what a report measured, else the prior.

    ``measured_alpha`` is ``acceptance.alpha`` of the report that `trtspec verify` writes. Raises SpecError for a value
    that is no probability.
    """
    given = given_acceptance(spec_alpha, measured_alpha)
    return prior_acceptance(draft_parameters, target_parameters, prompt_tokens) if given is None else given


def given_acceptance(spec_alpha: float | None, measured_alpha: float | None) -> Acceptance | None:
    """What the spec says, else what a report measured, else None. Raises SpecError for what is no probability."""
    if spec_alpha is not None:
        return _given(spec_alpha, "spec", "acceptance is the one the spec states")
    if measured_alpha is not None:
        return _given(measured_alpha, "measured", "acceptance was measured by trtspec verify, on the report's prompts")
    return None


def prior_acceptance(draft_parameters: int, target_parameters: int, prompt_tokens: int) -> Acceptance:
    """A guess from the size ratio and the prompt length in tokens (module docstring); sizes in parameters."""
    ratio = draft_parameters / target_parameters
    fall = FALL_PER_DOUBLING * max(0.0, math.log2(max(prompt_tokens, 1) / REFERENCE_PROMPT_TOKENS))
    low = _clamped(_line(ratio, SMALL_DRAFT, LARGE_DRAFT) - fall)
    high = max(low, _clamped(_line(ratio, FITTED_1B_OF_405B, FITTED_8B_OF_405B) - fall))
    return Acceptance(
        alpha=(low + high) / 2,
        low=low,
        high=high,
        origin="prior",
        explanation=f"acceptance is a guess from the draft's {ratio:.2%} of the target's parameters and prompts of "
        f"{prompt_tokens} tokens, between {low:.2f} ({SQUEEZEBITS}) and {high:.2f} ({NVIDIA}); trtspec verify "
        "measures it",
    )


def _given(alpha: float, origin: Origin, explanation: str) -> Acceptance:
    if not 0.0 <= alpha <= 1.0:
        raise SpecError(
            f"The acceptance ({origin}) is {alpha}, expected a probability between 0 and 1.",
            remedy="Give the per-token acceptance probability, acceptance.alpha in a report of trtspec verify.",
        )
    return Acceptance(alpha, alpha, alpha, origin, explanation)


def _line(ratio: float, first: Observation, second: Observation) -> float:
    """Alpha at a size ratio on the straight line through two observations, over the logarithm of the ratio."""
    slope = (second.alpha - first.alpha) / math.log(second.size_ratio / first.size_ratio)
    return first.alpha + slope * math.log(ratio / first.size_ratio)


def _clamped(alpha: float) -> float:
    return min(HIGHEST_ALPHA, max(LOWEST_ALPHA, alpha))
