"""How many tokens a round yields, and when drafting pays: Leviathan et al., arXiv 2211.17192, as pure functions.

    alpha       probability that a drafted token is accepted, given that all before it were; 0 to 1
    draft_len   tokens drafted in a round (gamma in the paper); 0 means the target alone
    cost_ratio  time of one draft step / time of one target step (c in the paper)

The model takes alpha as equal and independent at every position, and a verification of draft_len + 1 tokens as costly
as a plain step. ``trt_spec.plan.speed`` drops the second assumption.
"""

from __future__ import annotations

from collections.abc import Sequence

BISECTIONS = 60  # halves [0, 1] until the step is below the spacing of floats near 1


def expected_tokens(alpha: float, draft_len: int) -> float:
    """Tokens a round yields on average, between 1 and draft_len + 1 (equation 1 of the paper).

    (1 - alpha^(draft_len + 1)) / (1 - alpha), computed as the sum 1 + alpha + ... + alpha^draft_len, which is exact at
    alpha = 1 as well and never falls when alpha rises.
    """
    _check_probability(alpha)
    tokens = 1.0
    for _ in range(draft_len):
        tokens = 1.0 + alpha * tokens
    return tokens


def expected_tokens_of_rates(rates: Sequence[float]) -> float:
    """Tokens a round of ``len(rates)`` drafted tokens yields on average, from measured rates of each position.

    ``rates[i]`` is the share of the rounds that kept all tokens before position i which kept that one too:
    1 + sum over j of the product of the first j rates.
    """
    tokens = 1.0
    for rate in reversed(rates):
        _check_probability(rate)
        tokens = 1.0 + rate * tokens
    return tokens


def speedup(alpha: float, draft_len: int, cost_ratio: float) -> float:
    """Wall-time gain over the target alone: E / (draft_len * cost_ratio + 1) (theorem 3.8 of the paper).

    It can exceed 1 for some draft_len exactly when alpha > cost_ratio.
    """
    return expected_tokens(alpha, draft_len) / (draft_len * cost_ratio + 1.0)


def best_draft_len(alpha: float, cost_ratio: float, max_draft_len: int) -> int:
    """The draft length of 0 to ``max_draft_len`` with the greatest gain; 0 says: do not speculate."""
    return best_index([speedup(alpha, length, cost_ratio) for length in range(max_draft_len + 1)])


def best_index(values: Sequence[float]) -> int:
    """Index of the greatest value, the first of equals.

    All values are looked at: where costs rise in steps the first fall is not the summit.
    """
    return max(range(len(values)), key=lambda index: (values[index], -index))


def break_even_alpha(draft_len: int, cost_ratio: float) -> float | None:
    """The smallest alpha at which drafting ``draft_len`` tokens costs no time; None if no alpha is enough."""
    return alpha_for_tokens(draft_len * cost_ratio + 1.0, draft_len)


def alpha_for_tokens(tokens: float, draft_len: int) -> float | None:
    """The smallest alpha whose expected tokens reach ``tokens``, by bisection; None beyond draft_len + 1 tokens."""
    if expected_tokens(1.0, draft_len) < tokens:
        return None
    if expected_tokens(0.0, draft_len) >= tokens:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if expected_tokens(middle, draft_len) >= tokens else (middle, high)
    return high


def _check_probability(value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"acceptance is a probability between 0 and 1, not {value}")
