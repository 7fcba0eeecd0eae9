"""One bench from its systems to the report; Ctrl-C ends it early with what was whole by then."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from trt_spec.plan.measured_speed import MeasuredSteps, average_steps
from trt_spec.serve.contract import UNARY_MODEL
from trt_spec.verify.bench.assemble import assemble_points, find_break_even, recommend_lengths
from trt_spec.verify.bench.results import SCHEMA_VERSION, BenchConditions, BenchReport
from trt_spec.verify.bench.run import Budget, MakeRequests, Recording, run_blocks
from trt_spec.verify.bench.settings import PRIMARY, Setting, Sweeps, list_settings, order_settings
from trt_spec.verify.bench.step_times import FEWEST_TEXTS, measure_reading, measure_steps, reads_drafts
from trt_spec.verify.bench.verdict import collect_notes, judge_bench
from trt_spec.verify.client import TritonClient
from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline, default_total_s
from trt_spec.verify.load.opening import opened
from trt_spec.verify.load.request import LoadRequest
from trt_spec.verify.load.run import check_answered, run_load
from trt_spec.verify.load.triton_grpc import TritonGrpcEndpoint
from trt_spec.verify.machine import measure_machine, read_cpu_times
from trt_spec.verify.results import MetricsDelta
from trt_spec.verify.server_metrics import scrape_metrics, subtract
from trt_spec.verify.tokenizer import TargetTokenizer, load_tokenizer
from trt_spec.verify.workload.prompts import load_prompts
from trt_spec.verify.workload.requests import Shape, build_requests

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Address:
    """Where a running system answers; ``tokenizer_folder`` None: prompts go as they are, without step times."""

    grpc_url: str
    metrics_url: str | None = None
    tokenizer_folder: Path | None = None


@dataclass(frozen=True)
class System:
    """A deployment to measure. ``start`` gives its address for the length of a with block."""

    name: str
    start: Callable[[], AbstractContextManager[Address]]


@dataclass(frozen=True)
class BenchOptions:
    """``requests`` a setting and block, two for each user at least; behind ``budget_s``, builds included, no setting
    begins but the first two of each system."""

    sweeps: Sweeps
    draft_len: int
    quick: bool = False
    prompts_path: Path | None = None
    requests: int = 12
    output_tokens: int = 128
    blocks: int = 5
    budget_s: float | None = None
    seed: int = 0


@dataclass
class _State:
    """What is known so far."""

    recording: Recording = field(default_factory=Recording)
    wanted: dict[Setting, frozenset[str]] = field(default_factory=dict)
    steps: dict[int, list[MeasuredSteps]] = field(default_factory=dict)
    metrics: MetricsDelta = field(default_factory=lambda: MetricsDelta(missing="not read"))
    interrupted: bool = False


class Bench:
    """Measures systems in turn. ``report`` is valid at any moment, also after an interrupted ``run``."""

    def __init__(
        self,
        options: BenchOptions,
        systems: Sequence[System],
        conditions: BenchConditions,
        progress: Progress = lambda _: None,
    ) -> None:
        self._options = options
        self._systems = systems
        self._conditions = conditions
        self._progress = progress
        self._state = _State()
        self._begun = time.monotonic()
        self._cpu_before = read_cpu_times()
        self._server = ""
        for system in systems:
            self._state.wanted.update(self._settings(system.name))

    def run(self) -> None:
        """Measures everything. KeyboardInterrupt ends it quietly: ``report`` says so."""
        try:
            for index, system in enumerate(self._systems):
                ends_at = self._ends_at(index)
                with system.start() as address:
                    self._measure(system.name, address, ends_at)
        except KeyboardInterrupt:
            self._state.interrupted = True

    @property
    def report(self) -> BenchReport:
        """What is known now."""
        state, options = self._state, self._options
        steps = tuple(map(average_steps, state.steps.values()))
        points = assemble_points(state.recording.loads, state.wanted, steps, options.seed)
        recommendations = recommend_lengths(points)
        break_even = find_break_even(points, options.draft_len)
        return BenchReport(
            schema_version=SCHEMA_VERSION,
            verdict=judge_bench(recommendations, break_even, options.draft_len, state.interrupted),
            interrupted=state.interrupted,
            seconds=time.monotonic() - self._begun,
            conditions=replace(self._conditions, server=self._server),
            points=points,
            steps=steps,
            break_even_concurrency=break_even,
            recommendations=recommendations,
            notes=collect_notes(points, state.wanted),
            machine=measure_machine(self._cpu_before),
            server_metrics=state.metrics,
        )

    def _settings(self, system: str) -> Mapping[Setting, frozenset[str]]:
        options = self._options
        return list_settings(options.sweeps, system, options.draft_len, quick=options.quick)

    def _ends_at(self, index: int) -> float:
        """When this system, its start included, has used its part of what is left: the part of its settings."""
        now = time.monotonic()
        if self._options.budget_s is None:
            return math.inf
        sizes = [len(self._settings(system.name)) for system in self._systems[index:]]
        return now + max(0.0, self._begun + self._options.budget_s - now) * sizes[0] / sum(sizes)

    def _measure(self, system: str, address: Address, ends_at: float) -> None:
        options = self._options
        tokenizer = load_tokenizer(address.tokenizer_folder) if address.tokenizer_folder else None
        deadline = Deadline(total_s=default_total_s(options.output_tokens))
        settings = order_settings(self._settings(system), options.draft_len)
        make_requests = self._request_maker(tokenizer)
        before = scrape_metrics(address.metrics_url) if address.metrics_url and system == PRIMARY else None
        with TritonClient(address.grpc_url, deadline_s=default_total_s(options.output_tokens)) as client:
            self._server = client.check_ready()
            drafts_from_model = client.interface(UNARY_MODEL).parameters.get("draft_source", "model") == "model"
        asyncio.run(self._warm_up(address, settings, make_requests, deadline))
        half_way = (time.monotonic() + ends_at) / 2

        def time_steps() -> None:
            if system == PRIMARY and tokenizer is not None:
                self._time_steps(address.grpc_url, tokenizer, make_requests, settings, drafts_from_model, half_way)

        budget = Budget(options.blocks, ends_at)
        asyncio.run(self._run_blocks(address, settings, make_requests, budget, deadline, time_steps))
        if before is not None and address.metrics_url:
            self._state.metrics = subtract(before, scrape_metrics(address.metrics_url))

    def _request_maker(self, tokenizer: TargetTokenizer | None) -> MakeRequests:
        """The same prompts for every setting of one load, whatever its draft length."""
        options = self._options
        prompts = load_prompts(options.prompts_path)

        @cache
        def make(setting: Setting) -> tuple[LoadRequest, ...]:
            tokens = setting.prompt_tokens
            shape = Shape(
                prompt_tokens=None if tokens is None else (tokens, tokens),
                output_tokens=(options.output_tokens, options.output_tokens),
                seed=options.seed,
            )
            count = max(options.requests, 2 * setting.concurrency)
            rows = build_requests(prompts, count, shape, tokenizer, num_draft_tokens=setting.num_draft_tokens)
            return tuple(replace(row, temperature=setting.temperature) for row in rows)

        return make

    async def _warm_up(
        self,
        address: Address,
        settings: Sequence[Setting],
        make_requests: MakeRequests,
        deadline: Deadline,
    ) -> None:
        """Each prompt once and a few tokens: engines keep prefixes, and so every setting finds them alike."""
        rows = {request.text: request for setting in settings for request in make_requests(setting)}
        requests = [replace(row, max_tokens=8, num_draft_tokens=None) for row in rows.values()]
        self._progress(f"warming up with {len(requests)} prompts")
        async with opened(TritonGrpcEndpoint(address.grpc_url)) as endpoint:
            load = await run_load(endpoint, requests, ClosedLoop(1), Bounds(len(requests)), deadline)
            check_answered(load, endpoint.name)

    def _time_steps(
        self,
        url: str,
        tokenizer: TargetTokenizer,
        make_requests: MakeRequests,
        settings: Sequence[Setting],
        drafts_from_model: bool,
        ends_at: float,
    ) -> None:
        """Of every load that is predicted, on its own prompts; those for which no time is left go without.

        Once a block: machines change their speed within minutes, and so it changes for both sides of the comparison.
        """
        deadline_s, longest = default_total_s(self._options.output_tokens), self._options.draft_len
        lengths = sorted({1, max(1, longest // 2), longest})
        plain = {item.plain for item in settings}
        batches = sorted({item.concurrency for item in plain if item == Setting(PRIMARY, 0, item.concurrency)})
        if not reads_drafts(url, deadline_s):
            return

        @cache
        def reading_s(prompts: tuple[tuple[int, ...], ...]) -> tuple[float, float]:
            return measure_reading(url, prompts, drafts_from_model=drafts_from_model, deadline_s=deadline_s)

        for batch in batches:
            runs = self._state.steps.get(batch, [])
            if not runs and time.monotonic() > ends_at:
                continue
            self._progress(f"timing the engines' steps, {batch} at once")
            texts = [request.text for request in make_requests(Setting(PRIMARY, 0, batch))]
            prompts = tuple(tuple(tokenizer.encode(text)) for text in texts if isinstance(text, str))
            steps = measure_steps(
                url,
                prompts,
                batch,
                lengths,
                first=len(runs) * max(batch, FEWEST_TEXTS),
                reading_s=reading_s(prompts),
                drafts_from_model=drafts_from_model,
                deadline_s=deadline_s,
            )
            self._state.steps[batch] = [*runs, steps]

    async def _run_blocks(
        self,
        address: Address,
        settings: Sequence[Setting],
        make_requests: MakeRequests,
        budget: Budget,
        deadline: Deadline,
        begin_block: Callable[[], None],
    ) -> None:
        async with opened(TritonGrpcEndpoint(address.grpc_url)) as endpoint:
            await run_blocks(
                endpoint,
                settings,
                make_requests,
                budget,
                deadline,
                self._state.recording,
                begin_block=begin_block,
                progress=self._progress,
            )
