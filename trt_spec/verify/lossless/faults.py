"""What is wrong with an output, by name. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

FaultName = Literal[
    "dropped_token",
    "repeated_token",
    "wrong_token",
    "cut_short",
    "too_long",
    "speculation_inactive",
    "drafts_not_real",
    "cross_request_leak",
    "seed_ignored",
    "seed_reused",
    "distribution_differs",
    "poison_prompt",
    "not_strict",
    "too_slow",
    "first_token_late",
]

WORDS: dict[FaultName, str] = {
    "dropped_token": "a token of the target's answer is missing",
    "repeated_token": "a token of the target's answer stands twice",
    "wrong_token": "a token that is not the target's choice was accepted",
    "cut_short": "the answer ends too early",
    "too_long": "the answer goes on behind its end",
    "speculation_inactive": "speculation inactive",
    "drafts_not_real": "drafts are counted and the draft model never ran",
    "cross_request_leak": "cross-request leak",
    "seed_ignored": "the seed is ignored: every sampled answer is the same",
    "seed_reused": "a seed is re-used: later tokens of sampled answers depend on earlier draws",
    "distribution_differs": "sampled answers have another distribution than the target's",
    "poison_prompt": "one prompt takes the server down",
    "not_strict": "near-ties, and the spec asks for strict losslessness",
    "too_slow": "the speed-up is below its threshold",
    "first_token_late": "the first token is later than its threshold",
}

# So many tokens must agree again behind the place for it to count as a shift.
_MIN_AGREEING_TOKENS = 2


def name_divergence(expected: Sequence[int], found: Sequence[int], position: int) -> FaultName:
    """What happened at the first difference: one token lost, one too many, or another one in its place."""
    if position >= len(found):
        return "cut_short"
    if position >= len(expected):
        return "too_long"
    if _agrees(expected[position + 1 :], found[position:]):
        return "dropped_token"
    if _agrees(expected[position:], found[position + 1 :]) and found[position] == _before(found, position):
        return "repeated_token"
    return "wrong_token"


def _before(ids: Sequence[int], position: int) -> int | None:
    return ids[position - 1] if position else None


def _agrees(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether the shorter one is the beginning of the longer one, and long enough to tell."""
    length = min(len(left), len(right))
    return length >= _MIN_AGREEING_TOKENS and tuple(left[:length]) == tuple(right[:length])
