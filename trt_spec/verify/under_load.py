"""What a user waits for while others are served: streams with speculation, several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.opening import opened
from trt_spec.verify.load.request import LoadRequest
from trt_spec.verify.load.run import run_load
from trt_spec.verify.load.triton_grpc import TritonGrpcEndpoint
from trt_spec.verify.results import Distribution, LoadSummary
from trt_spec.verify.summary import summarise_load


@dataclass(frozen=True)
class UnderLoadOptions:
    """``requests`` (0: none), ``concurrency`` of them at once, of at most ``tokens`` tokens each."""

    requests: int = 16
    concurrency: int = 4
    tokens: int = 48


def measure_under_load(
    url: str,
    prompts: Sequence[tuple[str, str]],
    num_draft_tokens: int | None,
    deadline_s: float,
    options: UnderLoadOptions,
) -> LoadSummary:
    """Streams the (id, text) prompts in turn. Lost requests are counted, never raised."""
    requests = [
        LoadRequest(name, "load", text, options.tokens, num_draft_tokens=num_draft_tokens) for name, text in prompts
    ]

    async def run() -> LoadSummary:
        arrival, bounds = ClosedLoop(options.concurrency), Bounds(len(requests))
        async with opened(TritonGrpcEndpoint(url)) as endpoint:
            return summarise_load(await run_load(endpoint, requests, arrival, bounds, Deadline(total_s=deadline_s)))

    return asyncio.run(run())


def load_rows(load: LoadSummary) -> list[tuple[str, ...]]:
    """Name, median, 90th and 99th percentile of what a user waits for, in ms, then the throughput and what was lost."""
    return [
        ("time to first token, ms", *_percentiles(load.time_to_first_token_s)),
        ("inter-token latency, ms", *_percentiles(load.inter_token_latency_s)),
        ("end-to-end latency, ms", *_percentiles(load.latency_s)),
        ("tokens/s of all together", "-" if load.tokens_per_s is None else f"{load.tokens_per_s:.1f}", "", ""),
        ("answered", f"{load.answered} of {load.requests}", "", ""),
    ]


def _percentiles(values: Distribution | None) -> tuple[str, str, str]:
    if values is None:
        return ("-", "-", "-")
    p50, p90, p99 = (f"{1000 * value:.1f}" for value in (values.p50, values.p90, values.p99))
    return (p50, p90, p99)
