"""Verifying a server that trtspec did not deploy: load figures, isolation, odd prompts. There is no target to compare.

Any Triton model that streams text, and any OpenAI-compatible server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from trt_spec.errors import VerifyFailed
from trt_spec.verify.load.address import resolve_endpoint
from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline, default_total_s
from trt_spec.verify.load.opening import opened
from trt_spec.verify.load.request import Endpoint, LoadRequest
from trt_spec.verify.load.run import check_answered, run_load
from trt_spec.verify.lossless.canary import Isolation, find_leaks, make_canaries
from trt_spec.verify.lossless.fuzz import ODD_PROMPTS, Fuzz
from trt_spec.verify.results import LoadSummary
from trt_spec.verify.summary import summarise_load
from trt_spec.verify.tokenizer import load_tokenizer
from trt_spec.verify.workload.prompts import load_prompts
from trt_spec.verify.workload.requests import Shape, build_requests

if TYPE_CHECKING:
    from rich.console import Console

_CANARIES = 16
_CANARY_TOKENS = 24
_FUZZ_TOKENS = 4


@dataclass(frozen=True)
class EndpointOptions:
    """``url`` as ``load.address`` reads it; a tokenizer counts tokens where the server does not."""

    url: str
    model: str | None = None
    prompts_path: Path | None = None
    max_tokens: int = 96
    tokenizer_folder: Path | None = None
    deadline_s: float | None = None
    concurrency: int = 4


@dataclass(frozen=True)
class EndpointReport:
    """``load``: all prompts once, ``concurrency`` at a time."""

    endpoint: str
    concurrency: int
    load: LoadSummary
    isolation: Isolation
    fuzz: Fuzz
    faults: tuple[str, ...]


def verify_endpoint(options: EndpointOptions, progress: Callable[[str], None] = lambda _: None) -> EndpointReport:
    """Raises SpecError, EnvironmentMissing or StepFailed when nothing can be measured."""
    return asyncio.run(_verify(options, progress))


async def _verify(options: EndpointOptions, progress: Callable[[str], None]) -> EndpointReport:
    prompts = load_prompts(options.prompts_path)
    # Only counts: the server applies the chat template, if it has one.
    tokenizer = load_tokenizer(options.tokenizer_folder) if options.tokenizer_folder else None
    shape = Shape(output_tokens=(options.max_tokens, options.max_tokens))
    requests = build_requests(prompts, len(prompts), shape, None)
    deadline = Deadline(total_s=options.deadline_s or default_total_s(options.max_tokens))
    async with opened(resolve_endpoint(options.url, options.model)) as endpoint:
        progress(f"connected to {endpoint.name}; {len(requests)} prompts, {options.concurrency} at a time")
        count = (lambda text: len(tokenizer.encode(text))) if tokenizer else None
        load = await run_load(
            endpoint, requests, ClosedLoop(options.concurrency), Bounds(len(requests)), deadline, count
        )
        check_answered(load, endpoint.name)
        progress(f"{_CANARIES} requests at once, each with a word of its own")
        isolation = await _isolate(endpoint, deadline)
        progress("odd prompts")
        fuzz = await _fuzz(endpoint, requests[0], deadline)
    summary = summarise_load(load)
    faults = _find_faults(summary, isolation, fuzz)
    return EndpointReport(endpoint.name, options.concurrency, summary, isolation, fuzz, faults)


async def _isolate(endpoint: Endpoint, deadline: Deadline) -> Isolation:
    canaries = make_canaries(_CANARIES, seed=0)
    requests = [LoadRequest(item.id, "canary", item.text, _CANARY_TOKENS) for item in canaries]
    result = await run_load(endpoint, requests, ClosedLoop(_CANARIES), Bounds(2 * _CANARIES), deadline)
    by_id = {item.id: item for item in canaries}
    asked = [by_id[item.id] for item in result.requests]
    return Isolation(len(asked), _CANARIES, find_leaks(asked, [item.text for item in result.requests]))


async def _fuzz(endpoint: Endpoint, good: LoadRequest, deadline: Deadline) -> Fuzz:
    answered = refused = 0
    for prompt in ODD_PROMPTS:
        odd = LoadRequest(prompt.id, "odd", prompt.data, _FUZZ_TOKENS)
        # The good one behind it tells a refusal from a server that is gone.
        result = await run_load(endpoint, [odd, good], ClosedLoop(1), Bounds(2), deadline)
        first, second = result.requests
        if first.outcome == "timed_out" or second.outcome != "answered":
            return Fuzz(answered + refused + 1, answered, refused, prompt.id, second.error or first.error)
        answered += first.outcome == "answered"
        refused += first.outcome == "failed"
    return Fuzz(len(ODD_PROMPTS), answered, refused)


def _find_faults(load: LoadSummary, isolation: Isolation, fuzz: Fuzz) -> tuple[str, ...]:
    faults = []
    if load.answered < load.requests:
        worst = next(iter(load.errors), "")
        faults.append(f"{load.requests - load.answered} of {load.requests} requests were not answered: {worst}.")
    if isolation.leaks:
        leak = isolation.leaks[0]
        faults.append(f"Cross-request leak: the answer to {leak.request} holds the word of {leak.owner}.")
    if fuzz.fatal:
        faults.append(f"The odd prompt {fuzz.fatal!r} takes the server down: {fuzz.error}.")
    if load.acceptance is not None and load.acceptance.drafted == 0:
        faults.append("Nothing was ever drafted: speculation inactive.")
    return tuple(faults)


def check_endpoint(report: EndpointReport) -> None:
    """Raises VerifyFailed with every fault."""
    if report.faults:
        raise VerifyFailed(" ".join(report.faults), remedy="See the server's log; the report has all figures.")


def print_endpoint(report: EndpointReport, console: Console) -> None:
    """The figures as a table for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(report.endpoint), title_justify="left")
    for column in ("figure", "mean", "p50", "p90", "p99", "values"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    load = report.load
    for name, figures, factor in (
        ("time to first token, ms", load.time_to_first_token_s, 1000),
        ("inter-token latency, ms", load.inter_token_latency_s, 1000),
        ("end-to-end latency, ms", load.latency_s, 1000),
        ("tokens/s of one user", load.tokens_per_s_per_user, 1),
    ):
        if figures is not None:
            cells = [f"{factor * value:.1f}" for value in (figures.mean, figures.p50, figures.p90, figures.p99)]
            table.add_row(name, *cells, str(figures.count))
    console.print(table)
    total = "-" if load.tokens_per_s is None else f"{load.tokens_per_s:.1f}"
    console.print(
        f"{load.answered} of {load.requests} answered, {load.failed} failed, {load.timed_out} timed out; {total} "
        f"tokens/s in all ({report.concurrency} at a time; tokens counted by {load.token_source})",
        highlight=False,
    )
    console.print("no fault found" if not report.faults else escape(" ".join(report.faults)), highlight=False)


def render_junit(report: EndpointReport) -> str:
    """One test case; every fault is a failure of it."""
    suite = ElementTree.Element("testsuite", name="trtspec verify", tests="1", failures=str(int(bool(report.faults))))
    case = ElementTree.SubElement(suite, "testcase", classname="verify", name=report.endpoint)
    for fault in report.faults:
        ElementTree.SubElement(case, "failure", type="fault", message=fault)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"
