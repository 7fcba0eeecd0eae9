"""Figures of a load run from the records of its requests. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from trt_spec.verify.acceptance import Acceptance, Round, measure_acceptance, ratio
from trt_spec.verify.results import Distribution, LoadResult, LoadSummary, RequestResult, TokenSource


def distribute(values: Iterable[float]) -> Distribution | None:
    """Mean and nearest-rank percentiles, None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        count=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=percentile(ordered, 0.5),
        p90=percentile(ordered, 0.9),
        p99=percentile(ordered, 0.99),
        minimum=ordered[0],
        maximum=ordered[-1],
    )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The smallest of the rising values that at least ``fraction`` of them do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def median_of_known(values: Iterable[float | None]) -> float | None:
    """The median of those values that are not None, None without any."""
    known = _known(values)
    return median(known) if known else None


def time_to_first_token_s(result: RequestResult) -> float | None:
    """Seconds until the first token; of a request that timed out before one, how long it was waited for."""
    if result.outcome == "failed":
        return None
    if result.message_s:
        return result.message_s[0]
    return result.latency_s if result.outcome == "timed_out" else None


def inter_token_latency_s(result: RequestResult) -> float | None:
    """Seconds a token after the first message; None for answers of one message, and for those that did not end.

    With speculation the first message may hold several tokens, so the divisor is what came after it.
    """
    if result.outcome != "answered" or len(result.message_s) < 2:
        return None
    after = result.tokens - result.message_tokens[0]
    return (result.message_s[-1] - result.message_s[0]) / after if after > 0 else None


def user_tokens_per_s(result: RequestResult) -> float | None:
    """Tokens per second of one answer, its first token's wait included."""
    return ratio(result.tokens, result.latency_s) if result.outcome == "answered" else None


def summarise_load(result: LoadResult) -> LoadSummary:
    """See ``LoadSummary`` for what counts where."""
    requests = result.requests
    answered = [item for item in requests if item.outcome == "answered"]
    timed_out = [item for item in requests if item.outcome == "timed_out"]
    tokens = sum(item.tokens for item in answered)
    gaps = [later - earlier for item in answered for earlier, later in pairwise(item.message_s)]
    return LoadSummary(
        requests=len(requests),
        answered=len(answered),
        failed=len(requests) - len(answered) - len(timed_out),
        timed_out=len(timed_out),
        answered_fraction=ratio(len(answered), len(requests)),
        errors=dict(Counter(item.error for item in requests if item.error).most_common()),
        seconds=result.seconds,
        tokens=tokens,
        token_source=_worst_source(answered),
        tokens_per_s=ratio(tokens, result.seconds),
        requests_per_s=ratio(len(answered), result.seconds),
        tokens_per_s_per_user=distribute(_known(map(user_tokens_per_s, answered))),
        time_to_first_token_s=distribute(_known(map(time_to_first_token_s, requests))),
        inter_token_latency_s=distribute(_known(map(inter_token_latency_s, answered))),
        inter_message_s=distribute(gaps),
        latency_s=distribute(item.latency_s for item in (*answered, *timed_out)),
        send_delay_s=distribute(item.delay_s for item in requests),
        acceptance=_acceptance(answered),
        interrupted=result.interrupted,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _worst_source(answered: Sequence[RequestResult]) -> TokenSource | None:
    """The least certain way in which any answer's tokens were counted."""
    order: tuple[TokenSource, ...] = ("messages", "tokenizer", "usage", "ids")
    return next((source for source in order if any(item.token_source == source for item in answered)), None)


def _acceptance(answered: Sequence[RequestResult]) -> Acceptance | None:
    """None where the endpoint told nothing of rounds: zero drafts and no word of drafts are not the same."""
    told = [item for item in answered if item.drafted_tokens is not None or item.rounds_drafted]
    if not told:
        return None
    return measure_acceptance(
        Round(drafted, accepted)
        for item in told
        for drafted, accepted in zip(item.rounds_drafted, item.rounds_accepted, strict=True)
    )
