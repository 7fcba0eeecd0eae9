"""The speed-up that measured step times and a measured acceptance lead to, by the plan's formula. Pure.

    S(B, g) = (T_plain(B) + R R_target) / (T_round(B, g) / E(g) + R (R_target + R_draft) + R_draft / N)
    T_round(B, g) = T_draft(B, g) + T_verify(B, g)

B requests in flight, g drafted tokens, E the expected tokens of a round (``acceptance_model``). T_plain is the time of
one token of the target alone, T_draft that of a draft call for g tokens, T_verify that of the target's call which
verifies them. N tokens follow the first one of an answer. R_target and R_draft are the times in which the engines read
a prompt: before its second token a request waits for its own draft engine, and at any time for the prompts of the
others, of which R = (B - 1) (1 - 1 / (2 n)) / N come a token where each user asks for n answers.
``trt_spec.plan.speed`` has the formula over predicted times, without prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from trt_spec.plan.acceptance_model import expected_tokens, expected_tokens_of_rates


@dataclass(frozen=True)
class MeasuredSteps:
    """Seconds of each kind of step with ``batch`` requests in flight; ``draft_s`` and ``verify_s`` by drafted tokens.

    Each is that of a whole call, with its way to the engine and back, as a round waits for it. ``read_s`` and
    ``draft_read_s`` are what target and draft engine take for a prompt that comes in. Lengths between the measured ones
    are interpolated, longer ones follow the last two.
    """

    batch: int
    plain_token_s: float
    draft_s: dict[int, float]
    verify_s: dict[int, float]
    read_s: float = 0.0
    draft_read_s: float = 0.0

    def round_s(self, draft_len: int) -> float:
        """Seconds of one round of ``draft_len`` drafted tokens, of the target alone at 0."""
        if draft_len == 0:
            return self.plain_token_s
        return interpolate(self.draft_s, draft_len) + interpolate(self.verify_s, draft_len)


def average_steps(runs: Sequence[MeasuredSteps]) -> MeasuredSteps:
    """The means of several measurements of the same batch and lengths. Raises ValueError without one."""
    if not runs:
        raise ValueError("no step was measured")
    return MeasuredSteps(
        batch=runs[0].batch,
        plain_token_s=fmean(run.plain_token_s for run in runs),
        draft_s={length: fmean(run.draft_s[length] for run in runs) for length in runs[0].draft_s},
        verify_s={length: fmean(run.verify_s[length] for run in runs) for length in runs[0].verify_s},
        read_s=fmean(run.read_s for run in runs),
        draft_read_s=fmean(run.draft_read_s for run in runs),
    )


@dataclass(frozen=True)
class Answers:
    """Of a load: tokens of an answer after the first one, on average, and how many answers each user asks for."""

    tokens: float = math.inf
    per_user: float = math.inf

    def others_reads(self, batch: int) -> float:
        """How many prompts of others come in while one token is generated.

        All others ask once an answer. But all users begin at once: each first answer meets the prompts that came before
        its own first token no more, which is half of the others'.
        """
        return (batch - 1) * (1.0 - 0.5 / self.per_user) / self.tokens


LONG = Answers()


def predict_speedup(rates: Sequence[float], steps: MeasuredSteps, draft_len: int, answers: Answers = LONG) -> float:
    """Gain over the target alone behind the first token; exactly 1 at length 0.

    ``rates`` are the measured conditional rates by position; positions beyond them repeat the last one. Raises
    ValueError without a rate.
    """
    round_token_s = steps.round_s(draft_len) / tokens_of_round(rates, draft_len)
    others = answers.others_reads(steps.batch)
    plain_s = steps.plain_token_s + others * steps.read_s
    if draft_len == 0:
        return 1.0
    drafts_s = others * steps.draft_read_s + steps.draft_read_s / answers.tokens
    return plain_s / (round_token_s + others * steps.read_s + drafts_s)


def tokens_of_round(rates: Sequence[float], draft_len: int) -> float:
    """Expected tokens of a round of ``draft_len`` drafted tokens."""
    if not rates:
        raise ValueError("no acceptance was measured")
    if len(rates) == 1:
        return expected_tokens(rates[0], draft_len)
    return expected_tokens_of_rates([rates[min(position, len(rates) - 1)] for position in range(draft_len)])


def interpolate(values: Mapping[int, float], at: int) -> float:
    """The value at ``at`` of a line through the nearest two known ones; one alone is taken for all.

    Raises ValueError without one. Never below the smallest known value: measured times scatter.
    """
    if not values:
        raise ValueError("no time was measured")
    known = sorted(values)
    if at in values or len(known) == 1:
        return values[at] if at in values else values[known[0]]
    right = next((index for index, place in enumerate(known) if place > at), len(known) - 1)
    low, high = known[max(right, 1) - 1], known[max(right, 1)]
    slope = (values[high] - values[low]) / (high - low)
    return max(values[low] + slope * (at - low), min(values.values()))
