"""How likely the target is to keep the next drafted token, by its place in the draft, from rounds that were seen.

    rate[j] = P(token j kept | all before it kept),   E[new tokens | n drafted] = 1 + sum over j of prod_{i<=j} rate[i]

Counting only the rounds that reached a place leaves no bias from where drafts end, which accepted / drafted has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

FIRST_RATE = 0.7
"""Expected of the first place before anything was seen; a draft model worth deploying has about that."""

POOL_PRIOR_ROUNDS = 2.0
"""What is expected beforehand counts as so many rounds; of a place behind the first, that it is as the one before."""

REQUEST_PRIOR_ROUNDS = 8.0
"""The pool's estimate counts as so many rounds of the request's own: its first rounds move it, one alone does not."""

POOL_MEMORY_ROUNDS = 60.0
REQUEST_MEMORY_ROUNDS = 40.0

KNOWN_ROUNDS = 2.9
"""Rounds after which the pool's estimate is more than what was expected beforehand."""

OPTIMISM = 0.7
"""Standard errors added to the pool's rates: what was seen too seldom is tried rather than given up."""


class RoundCounts:
    """How often each place of a draft was reached and kept; a round fades with ``memory_rounds`` later ones."""

    def __init__(self, max_len: int, memory_rounds: float) -> None:
        self.reached = [0.0] * max_len
        self.kept = [0.0] * max_len
        self._fade = 1.0 - 1.0 / memory_rounds

    def add(self, drafted: int, accepted: int, *, rejected: bool) -> None:
        """A round; ``rejected`` tells whether a token behind the accepted ones was refused, or the answer had ended."""
        reached, kept, fade = self.reached, self.kept, self._fade
        for place in range(min(drafted, accepted + rejected, len(reached))):
            reached[place] = reached[place] * fade + 1.0
            kept[place] = kept[place] * fade + (place < accepted)


class PooledAcceptance:
    """Rates of all requests together, of one source of drafts."""

    def __init__(self, max_len: int) -> None:
        self.counts = RoundCounts(max_len, POOL_MEMORY_ROUNDS)
        self.rates = self._estimate()
        self.expected = expected_of_rates(self.rates)

    @property
    def rounds(self) -> float:
        return self.counts.reached[0] if self.counts.reached else 0.0

    @property
    def is_known(self) -> bool:
        return self.rounds >= KNOWN_ROUNDS

    def add(self, drafted: int, accepted: int, *, rejected: bool) -> None:
        self.counts.add(drafted, accepted, rejected=rejected)
        self.rates = self._estimate()
        self.expected = expected_of_rates(self.rates)

    def _estimate(self) -> list[float]:
        rates, prior = [], FIRST_RATE
        for reached, kept in zip(self.counts.reached, self.counts.kept, strict=True):
            weight = reached + POOL_PRIOR_ROUNDS
            prior = (kept + POOL_PRIOR_ROUNDS * prior) / weight
            rates.append(min(1.0, prior + OPTIMISM * sqrt(prior * (1.0 - prior) / (weight + 1.0))))
        return rates


class RequestAcceptance:
    """Rates of one request: its own rounds, and the pool's while they are few."""

    def __init__(self, pool: PooledAcceptance) -> None:
        self._pool = pool
        self._counts = RoundCounts(len(pool.rates), REQUEST_MEMORY_ROUNDS)

    @property
    def rounds(self) -> float:
        return self._counts.reached[0] if self._counts.reached else 0.0

    def add(self, drafted: int, accepted: int, *, rejected: bool) -> None:
        self._counts.add(drafted, accepted, rejected=rejected)
        self._pool.add(drafted, accepted, rejected=rejected)

    def expected_tokens(self, max_len: int) -> list[float]:
        """New tokens a round yields on average with 0 to ``max_len`` drafted ones."""
        prior, places = (
            REQUEST_PRIOR_ROUNDS,
            zip(self._counts.kept, self._counts.reached, self._pool.rates, strict=True),
        )
        rates = [(kept + prior * pooled) / (reached + prior) for kept, reached, pooled in places]
        return expected_of_rates(rates[:max_len])


def expected_of_rates(rates: Sequence[float]) -> list[float]:
    """New tokens a round yields on average with 0 to len(rates) drafted ones."""
    expected, chance = [1.0], 1.0
    for rate in rates:
        chance *= rate
        expected.append(expected[-1] + chance)
    return expected
