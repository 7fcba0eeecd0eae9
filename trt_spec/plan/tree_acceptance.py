"""How many tokens a step of a Medusa tree yields (Cai et al., arXiv 2401.10774, section 2.3.3), as pure functions.

A node is accepted if every guess on its path is right. With a(k, i) the probability that guess i of head k is the right
token, taken as independent between heads, the expected tokens of a step are

    E = 1 + sum over nodes of the product of a(k, path[k]) over their path

of which 1 is the target's own next token. Independence is the paper's assumption; it is pessimistic where heads are
right together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trt_spec.spec.medusa import Path

Origin = Literal["spec", "prior"]

# Top-1 and top-5 shares of three heads trained on a Llama 3.1 70B, as their owner reports them (TensorRT-LLM issue
# 2506, November 2024); the third head's top-5 and all further heads continue the ratio of the two before.
OBSERVED_TOP_1 = (0.684, 0.326, 0.181)
OBSERVED_TOP_5 = (0.855, 0.545)
OBSERVED = "TensorRT-LLM issue 2506: three heads on one Llama 3.1 70B"
GUESSES = 5


@dataclass(frozen=True)
class HeadAccuracies:
    """``guesses[k][i]``: probability that guess i of head k is the right token; 0 beyond what is given."""

    guesses: tuple[tuple[float, ...], ...]
    origin: Origin
    explanation: str

    def of(self, head: int, guess: int) -> float:
        """Probability that this guess of this head is right."""
        known = self.guesses[head] if head < len(self.guesses) else ()
        return known[guess] if guess < len(known) else 0.0


def expected_tree_tokens(choices: Sequence[Path], accuracies: HeadAccuracies) -> float:
    """Tokens a step yields on average: at least 1, at most one more than the tree is deep."""
    return 1.0 + sum(path_probability(path, accuracies) for path in choices)


def path_probability(path: Path, accuracies: HeadAccuracies) -> float:
    """Probability that every guess of a path is right."""
    return math.prod(accuracies.of(head, guess) for head, guess in enumerate(path))


def choose_accuracies(given: Sequence[Sequence[float]] | None, heads: int) -> HeadAccuracies:
    """What the spec states (top-1, top-2, ... shares of each head), else a guess for ``heads`` heads."""
    if given is not None:
        shares = tuple(_differences(row) for row in given[:heads])
        return HeadAccuracies(shares, "spec", "accuracies of the heads are those the spec states")
    first, first_five = _continued(OBSERVED_TOP_1, heads), _continued(OBSERVED_TOP_5, heads)
    return HeadAccuracies(
        tuple(_decaying(one, five) for one, five in zip(first, first_five, strict=True)),
        "prior",
        f"accuracies of the heads are a guess ({OBSERVED}); speculation.head_accuracies states those of your own",
    )


def _differences(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares among the first one, two, ... guesses, as the share of each guess alone."""
    return tuple(share - before for before, share in zip((0.0, *shares), shares, strict=False))


def _continued(observed: Sequence[float], heads: int) -> tuple[float, ...]:
    ratio = observed[-1] / observed[-2]
    return tuple(
        observed[head] if head < len(observed) else observed[-1] * ratio ** (head - len(observed) + 1)
        for head in range(heads)
    )


def _decaying(first: float, first_five: float) -> tuple[float, ...]:
    """Five guesses that fall by one ratio, from the share of the first and of all five together; none beyond."""
    low, high = 0.0, 1.0
    for _ in range(60):  # halves [0, 1] until the step is below the spacing of floats
        ratio = (low + high) / 2
        total = first * sum(ratio**guess for guess in range(GUESSES))
        low, high = (low, ratio) if total >= first_five else (ratio, high)
    return tuple(first * high**guess for guess in range(GUESSES))
