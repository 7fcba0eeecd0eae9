"""From recorded loads and step times to the points of a report, the break-even and the recommended lengths. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from trt_spec.plan.measured_speed import Answers, MeasuredSteps, predict_speedup
from trt_spec.verify.bench.results import BenchPoint, Recommendation
from trt_spec.verify.bench.settings import PRIMARY, SWEEPS, Setting
from trt_spec.verify.compare import join_runs, judge_blocks
from trt_spec.verify.results import LoadResult, Ratio
from trt_spec.verify.summary import median_of_known, summarise_load, user_tokens_per_s

Loads = Mapping[Setting, Sequence[LoadResult]]


def assemble_points(
    loads: Loads, sweeps: Mapping[Setting, frozenset[str]], steps: Sequence[MeasuredSteps], seed: int
) -> tuple[BenchPoint, ...]:
    """One point a setting that was measured, in the order of ``sweeps``."""
    by_batch = {item.batch: item for item in steps}
    rates = measured_rates(loads)
    points = []
    for setting, names in sweeps.items():
        if not loads.get(setting):
            continue
        predicted = None
        if _is_predictable(setting) and rates and setting.concurrency in by_batch:
            steps_of = by_batch[setting.concurrency]
            answers = describe_answers(loads.get(setting.plain) or loads[setting], setting.concurrency)
            predicted = predict_speedup(rates, steps_of, setting.num_draft_tokens or 0, answers)
        points.append(_point(setting, names, loads, predicted, seed))
    return tuple(points)


def _is_predictable(setting: Setting) -> bool:
    """Step times were measured on prompts as they are, greedily, on the system as deployed."""
    return setting == Setting(PRIMARY, setting.num_draft_tokens, setting.concurrency) and bool(setting.num_draft_tokens)


def describe_answers(runs: Sequence[LoadResult], concurrency: int) -> Answers:
    """How long the answers of a load are, and how many each user got."""
    lengths = [item.tokens - 1 for run in runs for item in run.requests if item.outcome == "answered"]
    per_user = sum(len(run.requests) for run in runs) / len(runs) / concurrency
    return Answers(max(1.0, fmean(lengths)) if lengths else math.inf, max(1.0, per_user))


def measured_rates(loads: Loads) -> tuple[float, ...]:
    """Conditional acceptance rates by position of one request at a time with the longest drafts; empty without."""
    measured = [
        setting
        for setting in loads
        if setting.num_draft_tokens and setting == Setting(PRIMARY, setting.num_draft_tokens) and loads[setting]
    ]
    if not measured:
        return ()
    longest = max(measured, key=lambda setting: setting.num_draft_tokens or 0)
    acceptance = summarise_load(join_runs(loads[longest])).acceptance
    if acceptance is None:
        return ()
    known = acceptance.per_position_conditional_rate
    return tuple(rate for rate in known[: known.index(None) if None in known else None] if rate is not None)


def _point(setting: Setting, names: frozenset[str], loads: Loads, predicted: float | None, seed: int) -> BenchPoint:
    runs = list(loads[setting])
    plain = list(loads.get(setting.plain, ()))
    ratios: dict[str, Ratio] = {}
    decode = None
    if setting.num_draft_tokens != 0 and plain:
        blocks = min(len(runs), len(plain))
        ratios = judge_blocks("plain", setting.label, plain[:blocks], runs[:blocks], seed=seed).ratios
        # Latencies the other way round: plain / drafted, so that more is better here too.
        decode = judge_blocks(setting.label, "plain", runs[:blocks], plain[:blocks], seed=seed).ratios.get(
            "inter_token_latency_s"
        )
    load = summarise_load(join_runs(runs))
    return BenchPoint(
        setting=setting,
        sweeps=tuple(name for name in SWEEPS if name in names),
        blocks=len(runs),
        load=load,
        median_tokens_per_s=median_of_known(summarise_load(run).tokens_per_s for run in runs),
        speedup=ratios.get("tokens_per_s_per_user"),
        decode_speedup=decode,
        total_speedup=ratios.get("tokens_per_s"),
        predicted_decode_speedup=predicted,
        samples=_samples(runs),
    )


def _samples(runs: Sequence[LoadResult]) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    for run in runs:
        for item in run.requests:
            speed = user_tokens_per_s(item)
            if speed is not None:
                found.setdefault(item.id, []).append(speed)
    return {name: tuple(values) for name, values in sorted(found.items())}


def find_point(points: Sequence[BenchPoint], setting: Setting) -> BenchPoint | None:
    """The point of a setting, if it was measured."""
    return next((point for point in points if point.setting == setting), None)


def points_under_load(points: Sequence[BenchPoint], concurrency: int) -> list[BenchPoint]:
    """Drafting points of the system as deployed with ``concurrency`` requests at once, greedy, prompts as they are."""
    return [
        point
        for point in points
        if point.setting.num_draft_tokens
        and point.setting == Setting(PRIMARY, point.setting.num_draft_tokens, concurrency)
    ]


def recommend_lengths(points: Sequence[BenchPoint]) -> tuple[Recommendation, ...]:
    """A draft length for every load that was measured with drafts."""
    found = []
    for concurrency in sorted({point.setting.concurrency for point in points}):
        rivals = [(point, ratio) for point in points_under_load(points, concurrency) if (ratio := point.speedup)]
        if not rivals:
            continue
        best, ratio = max(rivals, key=lambda rival: rival[1].value)
        pays = ratio.value > 1 and ratio.significant
        lengths = tuple(sorted(point.setting.num_draft_tokens or 0 for point, _ in rivals))
        length = best.setting.num_draft_tokens or 0
        found.append(Recommendation(concurrency, length if pays else 0, ratio, lengths))
    return tuple(found)


def find_break_even(points: Sequence[BenchPoint], draft_len: int) -> float | None:
    """The concurrency from which ``draft_len`` drafted tokens cost time, between points on a line over its logarithm.

    None if they never do, or nothing is known; the lowest concurrency measured if they always do.
    """
    known = sorted(
        (point.setting.concurrency, point.speedup.value)
        for point in points
        if point.setting == Setting(PRIMARY, draft_len, point.setting.concurrency) and point.speedup
    )
    if not known:
        return None
    if known[0][1] <= 1:
        return float(known[0][0])
    for (few, gain), (many, loss) in pairwise(known):
        if loss <= 1:
            share = (gain - 1) / (gain - loss)
            return math.exp(math.log(few) + share * (math.log(many) - math.log(few)))
    return None
