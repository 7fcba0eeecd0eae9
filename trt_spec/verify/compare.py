"""Two systems under the same load, interleaved A B A B, because machines slow down and caches warm within minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trt_spec.errors import SpecError
from trt_spec.verify.bootstrap import bootstrap_ratio
from trt_spec.verify.load.arrival import Arrival, Bounds
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import Endpoint, LoadRequest
from trt_spec.verify.load.run import CountTokens, run_load
from trt_spec.verify.results import Comparison, LoadResult, Ratio, RequestResult
from trt_spec.verify.summary import (
    inter_token_latency_s,
    summarise_load,
    time_to_first_token_s,
    user_tokens_per_s,
)

MIN_BLOCKS = 2

_FIGURES: dict[str, Callable[[RequestResult], float | None]] = {
    "tokens_per_s_per_user": user_tokens_per_s,
    "time_to_first_token_s": time_to_first_token_s,
    "inter_token_latency_s": inter_token_latency_s,
    "latency_s": lambda item: None if item.outcome == "failed" else item.latency_s,
}


@dataclass(frozen=True)
class System:
    """One side: an open endpoint and what is sent to it, in order. Both sides get the same prompts."""

    name: str
    endpoint: Endpoint
    requests: Sequence[LoadRequest]


async def compare_systems(
    a: System,
    b: System,
    arrival: Arrival,
    deadline: Deadline,
    *,
    blocks: int,
    seed: int = 0,
    count_tokens: CountTokens | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Runs each side ``blocks`` times over all its requests, in turn, A first. Raises SpecError for unequal loads."""
    if blocks < MIN_BLOCKS or len(a.requests) != len(b.requests) or not a.requests:
        raise SpecError(
            f"{len(a.requests)} and {len(b.requests)} requests in {blocks} blocks are no comparison.",
            remedy=f"Give both sides the same requests and at least {MIN_BLOCKS} blocks.",
        )
    runs: dict[str, list[LoadResult]] = {"a": [], "b": []}
    for block in range(blocks):
        for side, system in (("a", a), ("b", b)):
            result = await run_load(
                system.endpoint, system.requests, arrival, Bounds(len(system.requests)), deadline, count_tokens
            )
            runs[side].append(result)
            summary = summarise_load(result)
            speed = "-" if summary.tokens_per_s is None else f"{summary.tokens_per_s:.1f}"
            progress(f"block {block + 1}/{blocks} {system.name}: {summary.answered} answered, {speed} tokens/s")
    return judge_blocks(a.name, b.name, runs["a"], runs["b"], seed=seed)


def judge_blocks(
    name_a: str, name_b: str, a: Sequence[LoadResult], b: Sequence[LoadResult], *, seed: int
) -> Comparison:
    """The comparison of runs that are there already, block by block. Pure."""
    ratios = {name: ratio for name in _FIGURES if (ratio := _ratio_of_requests(name, a, b, seed)) is not None}
    totals = [(summarise_load(left).tokens_per_s, summarise_load(right).tokens_per_s) for left, right in _pairs(a, b)]
    known = [(left, right) for left, right in totals if left is not None and right is not None]
    total = bootstrap_ratio([left for left, _ in known], [right for _, right in known], seed=seed)
    if total is not None:
        ratios["tokens_per_s"] = total
    return Comparison(name_a, name_b, len(a), seed, summarise_load(join_runs(a)), summarise_load(join_runs(b)), ratios)


def join_runs(runs: Sequence[LoadResult]) -> LoadResult:
    """One run of several, one after the other; pauses between them do not count."""
    requests: list[RequestResult] = []
    seconds = 0.0
    for run in runs:
        requests += [replace(item, sent_s=item.sent_s + seconds) for item in run.requests]
        seconds += run.seconds
    return LoadResult(seconds, tuple(requests), any(run.interrupted for run in runs))


def _pairs(a: Sequence[LoadResult], b: Sequence[LoadResult]) -> list[tuple[LoadResult, LoadResult]]:
    return list(zip(a, b, strict=True))


def _ratio_of_requests(name: str, a: Sequence[LoadResult], b: Sequence[LoadResult], seed: int) -> Ratio | None:
    """Over the prompts that gave the figure on both sides, block by block."""
    figure = _FIGURES[name]
    lefts, rights = [], []
    for run_a, run_b in _pairs(a, b):
        by_id = _by_occurrence(run_b)
        for key, item in _by_occurrence(run_a).items():
            other = by_id.get(key)
            left, right = figure(item), None if other is None else figure(other)
            if left is not None and right is not None:
                lefts.append(left)
                rights.append(right)
    return bootstrap_ratio(lefts, rights, seed=seed)


def _by_occurrence(run: LoadResult) -> dict[tuple[str, int], RequestResult]:
    """Requests by prompt id and how often it has come before: order of completion does not pair them wrongly."""
    seen: dict[str, int] = {}
    found = {}
    for item in run.requests:
        seen[item.id] = seen.get(item.id, -1) + 1
        found[item.id, seen[item.id]] = item
    return found
