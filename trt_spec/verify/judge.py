"""Is the output with speculation that of the target alone? Pure: token ids and logits in, verdicts out.

Greedy outputs are compared id by id. Where they part, the target's logits decide: when it rated both tokens within the
numeric noise of its kernels, either is a right answer (a near-tie), otherwise speculation changed the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trt_spec.verify.lossless.faults import FaultName

# Kernels of different batch width add in a different order. On a CPU in fp32 the logits of one position then differ by
# about 1e-4; ten times that leaves room for larger models and stays far below a gap that means anything.
NEAR_TIE_GAP = 1e-3

# Half-precision logits of size 16 to 32 come in steps of 2^-6 (fp16) and 2^-3 (bf16): two steps are noise. Derived from
# the number formats, not measured on a GPU. Unknown types get the strictest gap.
_NEAR_TIE_GAP_OF_DTYPE = {"float32": NEAR_TIE_GAP, "float16": 2 * 2**-6, "bfloat16": 2 * 2**-3}

Outcome = Literal["same", "near_tie", "different"]
Verdict = Literal["lossless", "different", "never_drafted"]


@dataclass(frozen=True)
class Judgement:
    """Verdict on one prompt.

    ``position`` counts generated tokens from 0; a token is None where that side had already ended. ``gap`` is in
    logits, None when the target's logits could not be had. ``near_ties`` counts all near-ties passed on the way.
    ``fault`` names what a difference looks like.
    """

    outcome: Outcome
    position: int | None = None
    expected_token: int | None = None
    found_token: int | None = None
    gap: float | None = None
    near_ties: int = 0
    fault: FaultName | None = None


@dataclass(frozen=True)
class RunVerdict:
    """Verdict on a whole run: ``lossless`` tolerates near-ties; ``passed`` also demands that something was drafted."""

    verdict: Verdict
    lossless: bool
    passed: bool
    same: int
    near_tie: int
    different: int


def near_tie_gap(dtype: str | None) -> float:
    """Largest logit gap that counts as numeric noise for a target computing in this dtype."""
    return _NEAR_TIE_GAP_OF_DTYPE.get(dtype or "", NEAR_TIE_GAP)


def trim_at_end(ids: Sequence[int], end_ids: Sequence[int]) -> tuple[int, ...]:
    """The ids before the first end token: engines differ in whether they return it."""
    for index, token in enumerate(ids):
        if token in end_ids:
            return tuple(ids[:index])
    return tuple(ids)


def find_divergence(expected: Sequence[int], found: Sequence[int]) -> int | None:
    """First position where two outputs differ, the end of the shorter one included; None when they are equal."""
    for index, (left, right) in enumerate(zip(expected, found, strict=False)):
        if left != right:
            return index
    return None if len(expected) == len(found) else min(len(expected), len(found))


def token_at(ids: Sequence[int], position: int) -> int | None:
    """The id at a position, None past the end."""
    return ids[position] if position < len(ids) else None


def measure_gap(logits: Any, tokens: Sequence[int]) -> float | None:
    """How far the worse of ``tokens`` stays below the best logit. ``logits``: float array [vocabulary].

    For the best two tokens this is the top-2 gap; for a token that is not among them it is larger, as it should be.
    None when the logits say nothing: all equal (an engine built without them returns zeros), not finite, too short.
    """
    values = [float(value) for value in logits]
    if len(values) <= max(tokens) or any(math.isnan(value) for value in values):
        return None
    best = max(values)
    gap = best - min(values[token] for token in tokens)
    return gap if best > min(values) and math.isfinite(gap) else None


def judge_divergence(
    position: int, expected: int | None, found: int | None, gap: float | None, *, tolerance: float = NEAR_TIE_GAP
) -> Judgement:
    """Near-tie or defect. An unknown gap is a defect: losslessness has to be shown, not assumed."""
    outcome: Outcome = "near_tie" if gap is not None and gap <= tolerance else "different"
    return Judgement(outcome, position, expected, found, gap, near_ties=int(outcome == "near_tie"))


def judge_run(judgements: Sequence[Judgement], drafted_tokens: int | None) -> RunVerdict:
    """Verdict over all prompts; a run that never drafted proves nothing about speculation and fails.

    ``drafted_tokens`` is None where the engine drafts inside and tells no counts.
    """
    counts = {name: sum(item.outcome == name for item in judgements) for name in ("same", "near_tie", "different")}
    lossless = counts["different"] == 0
    verdict: Verdict = "different" if not lossless else "lossless" if drafted_tokens != 0 else "never_drafted"
    return RunVerdict(verdict, lossless, verdict == "lossless", **counts)
