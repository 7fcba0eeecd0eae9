"""Do two samples of token sequences come from one distribution? A chi-square test by permutation. Pure.

The same prompt is answered many times with and without speculation, each time with a seed of its own. The counts of
the first token, of the first two and of the first three are compared. Permuting who said what gives the exact
distribution of the statistic whatever the counts, where the usual chi-square table needs large ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trt_spec.verify.lossless.faults import FaultName

TOKENS = 3
# A server that samples rightly fails one comparison in 10,000.
RARE = 1e-4
_PERMUTATIONS = 20_000
_SCREENING = 400
_SCREENED_OUT = 0.05
# Sequences seen less often than this on both sides together are counted as one.
_MIN_COUNT = 8


@dataclass(frozen=True)
class SampledVerdict:
    """Of one prompt: p-values over the first 1, 2, .. tokens, samples a side, distinct sequences, and the fault."""

    prompt: str
    samples: int
    p_values: tuple[float, ...]
    distinct_plain: int
    distinct_speculative: int
    fault: FaultName | None


def judge_samples(
    prompt: str, plain: Sequence[Sequence[int]], speculative: Sequence[Sequence[int]], *, seed: int
) -> SampledVerdict:
    """Verdict on one prompt. Where only later tokens differ, the draws of one answer are not independent."""
    p_values = tuple(
        compare_counts(_count(plain, length), _count(speculative, length), seed=seed + length)
        for length in range(1, TOKENS + 1)
    )
    distinct = [len({tuple(ids) for ids in side}) for side in (plain, speculative)]
    fault: FaultName | None = None
    if min(p_values) <= RARE:
        if distinct[1] == 1 < distinct[0]:
            fault = "seed_ignored"
        else:
            fault = "distribution_differs" if p_values[0] <= RARE else "seed_reused"
    return SampledVerdict(prompt, min(len(plain), len(speculative)), p_values, distinct[0], distinct[1], fault)


def compare_counts(a: Counter[tuple[int, ...]], b: Counter[tuple[int, ...]], *, seed: int) -> float:
    """The probability of counts at least as different, were they one distribution; 1 where nothing can be told."""
    import numpy as np

    rows = _pool(a, b)
    if rows is None:
        return 1.0
    table = np.asarray(rows, dtype=np.int64)
    totals = table.sum(axis=0)
    size = int(table[0].sum())
    expected = totals * (size / totals.sum())
    # With the margins fixed, one row decides the whole table.
    observed = (((table[0] - expected) ** 2) / expected).sum()
    generator = np.random.default_rng(seed)
    for permutations in (_SCREENING, _PERMUTATIONS):
        drawn = generator.multivariate_hypergeometric(totals, size, size=permutations)
        statistics = (((drawn - expected) ** 2) / expected).sum(axis=1)
        p_value = (1 + int((statistics >= observed - 1e-9).sum())) / (1 + permutations)
        if p_value > _SCREENED_OUT:
            break
    return p_value


def _count(sequences: Sequence[Sequence[int]], length: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(ids[:length]) for ids in sequences)


def _pool(a: Counter[tuple[int, ...]], b: Counter[tuple[int, ...]]) -> list[list[int]] | None:
    frequent = [key for key in sorted({*a, *b}) if a[key] + b[key] >= _MIN_COUNT]
    rows = [[side[key] for key in frequent] for side in (a, b)]
    rest = [side.total() - sum(row) for side, row in zip((a, b), rows, strict=True)]
    if any(rest):
        rows = [[*row, left] for row, left in zip(rows, rest, strict=True)]
    return rows if len(rows[0]) > 1 and any(rows[0]) and any(rows[1]) else None
