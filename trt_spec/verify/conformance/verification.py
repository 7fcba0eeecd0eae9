"""Probes of a call with drafts: what is accepted, and what comes instead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trt_spec.verify.conformance.engine import ProbedEngine
from trt_spec.verify.conformance.observation import NotApplicable, Observation, join, judge, judge_ids
from trt_spec.verify.conformance.odds import RARE, binomial_p_value

DRAFTS = 3
TRIALS = 160
REPLACED_TRIALS = 80
SAMPLED_TRIALS = 100
THRESHOLD_SEEDS = 6
ACCEPTED = 0.5
"""Share of drafts that the made-up draft logits make an engine accept that takes them as they are."""
TEMPERATURES = (4.0, 2.0, 1.5)
TELLING = 0.25
"""Smallest difference in acceptance between raw and divided draft logits that the trials can tell."""
MOST_LIKELY = 0.35


def probe_token_acceptance(engine: ProbedEngine) -> Observation:
    text, n = engine.text, engine.drafts_wanted(DRAFTS)
    parts = []
    for wrong in range(n):
        drafts = list(text.answer[:n])
        drafts[wrong] = _another(drafts[wrong])
        seen = engine.verify(text.prompt, drafts, runtime_top_k=1)
        parts.append(judge_ids(text.answer[: wrong + 1], seen, f"draft {wrong + 1} of {n} wrong:"))
    return join(parts)


def probe_bonus_token(engine: ProbedEngine) -> Observation:
    text, n = engine.text, engine.drafts_wanted(DRAFTS)
    seen = engine.verify(text.prompt, text.answer[:n], runtime_top_k=1)
    return judge_ids(text.answer[: n + 1], seen, f"{n} right drafts and one more:")


def probe_sampled_token_acceptance(engine: ProbedEngine) -> Observation:
    engine.drafts_wanted(1)
    (logits,) = engine.logits(engine.text.prompt)
    token = int(logits.argmax())
    shares = {temperature: float(softmax(logits / temperature)[token]) for temperature in (1.0, *TEMPERATURES)}
    temperature = min(shares, key=lambda temperature: abs(shares[temperature] - ACCEPTED))
    accepted = sum(
        engine.verify(engine.text.prompt, [token], **engine.sample(temperature, seed))[0] == token
        for seed in range(1, SAMPLED_TRIALS + 1)
    )
    why = f"the target's own draw at temperature {temperature:g} is the draft"
    return _judge_share(accepted, SAMPLED_TRIALS, shares[temperature], why)


def probe_raw_draft_logits(engine: ProbedEngine) -> Observation:
    engine.needs("draft_logits")
    bet = find_bet(engine)
    accepted = 0
    for seed in range(1, TRIALS + 1):
        sampling = engine.sample(bet.temperature, seed)
        accepted += engine.verify(engine.text.prompt, [bet.token], bet.rows, **sampling)[0] == bet.token
    share = _judge_share(accepted, TRIALS, ACCEPTED, f"min(1, p/q) at temperature {bet.temperature:g}, q of raw logits")
    return judge(share.verdict == "held", f"{share.expected}; {bet.divided:.2f} if they were divided by it", share.seen)


def probe_residual(engine: ProbedEngine) -> Observation:
    engine.needs("draft_logits")
    bet = find_bet(engine)
    # 0.9 leaves room for the rounding of half-precision logits.
    never = set(np.flatnonzero(bet.p < 0.9 * bet.q).tolist())
    replaced, wrong = 0, 0
    for seed in range(1, REPLACED_TRIALS + 1):
        first = engine.verify(engine.text.prompt, [bet.token], bet.rows, **engine.sample(bet.temperature, 1000 + seed))[
            0
        ]
        replaced += first != bet.token
        wrong += first != bet.token and first in never
    if replaced < REPLACED_TRIALS // 8:
        raise NotApplicable(f"only {replaced} of {REPLACED_TRIALS} drafts were replaced, too few to tell")
    outside = float(sum(bet.p[token] for token in never if token != bet.token))
    return judge(
        wrong == 0,
        f"no replacement where p < q (a draw from p alone would fall there with {outside:.2f})",
        f"{wrong} of {replaced} replacements",
    )


def probe_threshold(engine: ProbedEngine) -> Observation:
    engine.needs("draft_logits", "draft_acceptance_threshold")
    bet = find_bet(engine)
    counts = {}
    for threshold in (ACCEPTED / 2, (1 + ACCEPTED) / 2):
        counts[threshold] = sum(
            engine.verify(
                engine.text.prompt,
                [bet.token],
                bet.rows,
                draft_acceptance_threshold=threshold,
                **engine.sample(bet.temperature, seed),
            )[0]
            == bet.token
            for seed in range(1, THRESHOLD_SEEDS + 1)
        )
    low, high = counts
    return judge(
        counts == {low: THRESHOLD_SEEDS, high: 0},
        f"p/q {ACCEPTED:g}: all accepted at threshold {low:g}, none at {high:g}",
        f"{counts[low]} of {THRESHOLD_SEEDS} at {low:g}, {counts[high]} at {high:g}",
    )


@dataclass(frozen=True)
class Bet:
    """A draft whose acceptance tells how its logits are read.

    ``p`` [vocabulary] is the target's distribution at ``temperature``, ``q`` the draft's by its raw logits ``rows``
    [1, vocabulary]: p/q of ``token`` is ACCEPTED. ``divided`` is what its acceptance would be, were the logits divided
    by the temperature.
    """

    token: int
    temperature: float
    p: NDArray[np.float64]
    q: NDArray[np.float64]
    rows: NDArray[np.float64]
    divided: float


def find_bet(engine: ProbedEngine) -> Bet:
    """The most telling draft behind the shared prompt. Raises NotApplicable without logits, or if none tells enough."""
    engine.drafts_wanted(1)
    (logits,) = engine.logits(engine.text.prompt)
    bets = [_make_bet(logits, temperature) for temperature in TEMPERATURES]
    best = max(bets, key=lambda bet: abs(bet.divided - ACCEPTED))
    if abs(best.divided - ACCEPTED) < TELLING:
        raise NotApplicable("no draft behind the prompt tells raw draft logits from divided ones")
    return best


def _make_bet(logits: NDArray[np.float64], temperature: float) -> Bet:
    p = softmax(logits / temperature)
    token = int(np.where(p <= MOST_LIKELY, p, 0.0).argmax())  # likelier ones are accepted however q is read
    q_token = p[token] / ACCEPTED
    rows = np.zeros((1, len(p)))
    # All other tokens get logit 0: q_token = e^v / (e^v + size - 1).
    rows[0, token] = np.log(q_token * (len(p) - 1) / (1.0 - q_token))
    divided = softmax(rows[0] / temperature)
    return Bet(token, temperature, p, softmax(rows[0]), rows, min(1.0, float(p[token] / divided[token])))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def _judge_share(count: int, trials: int, probability: float, why: str) -> Observation:
    p_value = binomial_p_value(count, trials, probability)
    expected = f"{probability:.3f} of {trials} accepted: {why}"
    return judge(p_value >= RARE, expected, f"{count} accepted ({count / trials:.3f}, p-value {p_value:.2g})")


def _another(token: int) -> int:
    return token - 1 if token > 1 else token + 1
