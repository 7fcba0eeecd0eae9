"""One verification from start to report: is speculation lossless, accepted and faster?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.verify.acceptance import measure_acceptance
from trt_spec.verify.bootstrap import bootstrap_ratio
from trt_spec.verify.client import TritonClient
from trt_spec.verify.conditions import read_cores, read_cpu, read_versions
from trt_spec.verify.judge import NEAR_TIE_GAP, Judgement, judge_run, trim_at_end
from trt_spec.verify.load.deadline import default_total_s
from trt_spec.verify.lossless.probes import (
    ProbeOptions,
    Probes,
    measure_noise,
    probe_isolation,
    probe_odd_prompts,
    probe_sampling,
)
from trt_spec.verify.machine import describe_gpus, measure_machine, read_cpu_times
from trt_spec.verify.measure import (
    ModelAlone,
    Pair,
    measure_model_alone,
    measure_pair,
    measure_speedup,
    measure_speedup_of_pairs,
    summarise_side,
)
from trt_spec.verify.reference import DirectReference, judge_against_orchestrator
from trt_spec.verify.report import (
    DIRECT_REFERENCE,
    INSIDE,
    ORCHESTRATOR_REFERENCE,
    Conditions,
    PromptReport,
    Report,
    describe_judgement,
    write_report,
)
from trt_spec.verify.results import LoadSummary, MetricsDelta, Ratio
from trt_spec.verify.server_metrics import Scrape, scrape_metrics, subtract
from trt_spec.verify.summary import distribute
from trt_spec.verify.thresholds import Thresholds
from trt_spec.verify.tokenizer import TargetTokenizer, load_tokenizer
from trt_spec.verify.under_load import UnderLoadOptions, measure_under_load
from trt_spec.verify.workload import Prompt, load_prompts
from trt_spec.verify.workload.layouts import Turn
from trt_spec.verify.workload.requests import render_prompt

DEFAULT_MAX_TOKENS = 96
_WARM_UP_TOKENS = 8

Progress = Callable[[str], None]


@dataclass(frozen=True)
class VerifyOptions:
    """What to verify. ``models`` names target and draft in the report; None for a limit means its default.

    ``deadline_s`` infinite waits for every answer as long as it takes.
    """

    url: str
    metrics_url: str | None = None
    prompts_path: Path | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    num_draft_tokens: int | None = None
    tokenizer_folder: Path | None = None
    report_folder: Path | None = None
    deadline_s: float | None = None
    near_tie_gap: float = NEAR_TIE_GAP
    measure_draft_alone: bool = False
    models: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    probes: ProbeOptions = field(default_factory=ProbeOptions)
    under_load: UnderLoadOptions = field(default_factory=UnderLoadOptions)
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass(frozen=True)
class _Result:
    prompt: Prompt
    pair: Pair
    judgement: Judgement
    plain_is_reference: bool
    expected: tuple[int, ...] = ()


def run_verify(options: VerifyOptions, progress: Progress = lambda _: None) -> Report:
    """Runs every prompt with and without speculation and writes the report, if a folder is given.

    Returns the report whatever the verdict; ``verdict.check_report`` turns a bad one into VerifyFailed. Raises
    SpecError, EnvironmentMissing or StepFailed when the run itself cannot be finished.
    """
    prompts = load_prompts(options.prompts_path)
    tokenizer = load_tokenizer(options.tokenizer_folder) if options.tokenizer_folder else None
    deadline_s = options.deadline_s or default_total_s(options.max_tokens)
    with TritonClient(options.url, deadline_s=deadline_s) as client:
        run = _Run(options, client, tokenizer, progress)
        report = run.verify(prompts)
    if options.report_folder:
        write_report(report, options.report_folder)
        progress(f"report written to {options.report_folder}")
    return report


class _Run:
    """The state that the steps of one verification share."""

    def __init__(
        self, options: VerifyOptions, client: TritonClient, tokenizer: TargetTokenizer | None, progress: Progress
    ) -> None:
        self.options = options
        self.client = client
        self.tokenizer = tokenizer
        self.progress = progress
        self.num_draft_tokens = options.num_draft_tokens
        self.cpu_before = read_cpu_times()
        self.metrics = MetricsDelta()
        self.under_load: LoadSummary | None = None
        self.reference = None
        if tokenizer:
            self.reference = DirectReference(client, tokenizer.end_ids, options.max_tokens, options.near_tie_gap)

    def verify(self, prompts: tuple[Prompt, ...]) -> Report:
        server = self.client.check_ready()
        if self.num_draft_tokens is None:
            self.num_draft_tokens = self.client.interface(UNARY_MODEL).int_parameter("max_draft_len")
        self.progress(f"connected to {server} on {self.client.url}; warming up")
        self._warm_up(prompts[0])
        self.cpu_before = read_cpu_times()
        metrics_before = self._scrape()
        executions_before = self.client.count_executions(DRAFT_MODEL)
        results = []
        for index, prompt in enumerate(prompts):
            results.append(self._run_prompt(prompt, plain_first=index % 2 == 0))
            self.progress(f"{index + 1}/{len(prompts)} {_describe(results[-1])}")
        executions = _rise(executions_before, self.client.count_executions(DRAFT_MODEL))
        self.metrics = subtract(metrics_before, self._scrape())
        self.under_load = self._measure_under_load(prompts)
        draft_alone = self._measure_draft(prompts)
        return self._report(results, server, draft_alone, self._probe(prompts, results, executions))

    def _scrape(self) -> Scrape:
        url = self.options.metrics_url
        return scrape_metrics(url) if url else Scrape({}, {}, missing="no address of metrics is known")

    def _render(self, text: str) -> str:
        return self.tokenizer.render_prompt(text) if self.tokenizer else text

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        assert self.tokenizer is not None
        return self.tokenizer.encode(render_prompt(prompt, self.tokenizer))

    def _probe(self, prompts: tuple[Prompt, ...], results: list[_Result], executions: int | None) -> Probes:
        """What the answers alone do not show. The odd prompts come last: the server may not survive them."""
        options, length = self.options.probes, self.num_draft_tokens
        end_ids = self.reference.end_ids if self.reference else ()
        sampled = isolation = noise = fuzz = None
        if options.samples:
            self.progress(f"comparing {options.samples} sampled answers a side of {options.sampled_prompts} prompts")
            rows = [
                (prompt.id, render_prompt(prompt, self.tokenizer), self._ids(prompt) if self.tokenizer else None)
                for prompt in prompts
            ]
            sampled = probe_sampling(self.client, rows, length, end_ids, options)
        if options.canaries:
            self.progress(f"{options.canaries} requests at once, each with a word of its own")
            isolation = probe_isolation(self.client, self._render, length, options)
        if options.noise_prompts and self.reference:
            self.progress("the target's answers again, in one batch")
            answers = [(item.prompt.id, self._ids(item.prompt), item.expected) for item in results]
            noise = measure_noise(self.reference, answers, options)
        if options.fuzz:
            self.progress("odd prompts")
            fuzz = probe_odd_prompts(self.client, length)
        return Probes(sampled or (), isolation, noise, fuzz, executions if self._draft_model_drafts() else None)

    def _draft_model_drafts(self) -> bool:
        """Whether every draft comes from the draft model: n-gram look-up and heads of the target need none."""
        return (
            not self.client.engine_drafts
            and self.client.interface(UNARY_MODEL).parameters.get("draft_source", "model") == "model"
        )

    def _warm_up(self, prompt: Prompt) -> None:
        """Not counted. Goes leg by leg, so that an error names the first model that does not work by itself."""
        if self.tokenizer:
            self.progress("every engine by itself, then the whole")
            for model in (TARGET_MODEL,) if self.client.engine_drafts else (TARGET_MODEL, DRAFT_MODEL):
                self.client.generate_from_ids(
                    model, self._ids(prompt), _WARM_UP_TOKENS, self.tokenizer.end_ids, label="the warm-up"
                )
        pair = self._measure(prompt, _WARM_UP_TOKENS, plain_first=True, label="the warm-up")
        if self.options.deadline_s is None:
            needed_s = default_total_s(self.options.max_tokens, pair.plain.tokens_per_s)
            self.client.deadline_s = max(self.client.deadline_s, needed_s)

    def _measure(self, prompt: Prompt, max_tokens: int, *, plain_first: bool, label: str) -> Pair:
        return measure_pair(
            self.client,
            prompt.text,
            lambda text: render_prompt(_with_text(prompt, text), self.tokenizer),
            max_tokens=max_tokens,
            num_draft_tokens=self.num_draft_tokens,
            plain_first=plain_first,
            label=label,
        )

    def _run_prompt(self, prompt: Prompt, *, plain_first: bool) -> _Result:
        label = f"prompt {prompt.id!r}"
        if self.reference is None:
            pair = self._measure(prompt, self.options.max_tokens, plain_first=plain_first, label=label)
            outputs = pair.plain.generation.output_ids, pair.speculative.generation.output_ids
            return _Result(prompt, pair, judge_against_orchestrator(*outputs), plain_is_reference=True)
        # The reference comes first, so that the target knows the prompt's prefix on both sides alike.
        ids = self._ids(prompt)
        expected = self.reference.generate(ids, label)
        pair = self._measure(prompt, self.options.max_tokens, plain_first=plain_first, label=label)
        judgement = self.reference.judge(ids, expected, pair.speculative.generation.output_ids, label)
        plain_ids = trim_at_end(pair.plain.generation.output_ids, self.reference.end_ids)
        return _Result(prompt, pair, judgement, plain_ids == expected, expected)

    def _measure_under_load(self, prompts: tuple[Prompt, ...]) -> LoadSummary | None:
        options = self.options.under_load
        if not options.requests:
            return None
        self.progress(f"{options.requests} streams, {options.concurrency} at once")
        # A fresh word in front, as in ``measure_pair``: no first token profits from what ran before.
        rows = [
            (prompt.id, render_prompt(_with_text(prompt, f"{os.urandom(3).hex()} {prompt.text}"), self.tokenizer))
            for prompt in islice(cycle(prompts), options.requests)
        ]
        return measure_under_load(self.client.url, rows, self.num_draft_tokens, self.client.deadline_s, options)

    def _measure_draft(self, prompts: tuple[Prompt, ...]) -> ModelAlone | None:
        if not self.options.measure_draft_alone or self.tokenizer is None:
            return None
        self.progress("measuring the draft engine alone")
        ids = [self._ids(prompt) for prompt in prompts]
        return measure_model_alone(self.client, DRAFT_MODEL, ids, self.options.max_tokens, self.tokenizer.end_ids)

    def _report(self, results: list[_Result], server: str, draft_alone: ModelAlone | None, probes: Probes) -> Report:
        rounds = [item for result in results for item in result.pair.speculative.generation.rounds]
        acceptance = measure_acceptance(rounds)
        plain = summarise_side([result.pair.plain for result in results])
        speculative = summarise_side([result.pair.speculative for result in results])
        inside = self.client.engine_drafts
        verdict = judge_run([result.judgement for result in results], None if inside else acceptance.drafted)
        reference = DIRECT_REFERENCE if self.reference else ORCHESTRATOR_REFERENCE
        return Report(
            lossless=verdict.lossless,
            acceptance=acceptance,
            plain=plain,
            speculative=speculative,
            # With heads in the engine both sides are the same requests: their ratio would say nothing of the heads.
            speedup=None if inside else measure_speedup(speculative.tokens_per_s, plain.tokens_per_s),
            speedup_of_medians=None
            if inside
            else measure_speedup(speculative.median_tokens_per_s, plain.median_tokens_per_s),
            speedup_of_pairs=None if inside else measure_speedup_of_pairs([result.pair for result in results]),
            verdict=verdict,
            reference=f"{reference}, {INSIDE}" if inside else reference,
            target_alone=self.reference.speed() if self.reference else None,
            draft_alone=draft_alone,
            prompts=tuple(map(_report_prompt, results)),
            conditions=self._conditions(server),
            speedup_interval=None if inside else _interval([result.pair for result in results]),
            drafts_inside=inside,
            speculative_time_to_first_token_s=distribute(
                first for item in results if (first := item.pair.speculative.time_to_first_token_s) is not None
            ),
            machine=measure_machine(self.cpu_before),
            server_metrics=self.metrics,
            probes=probes,
            thresholds=self.options.thresholds,
            under_load=self.under_load,
        )

    def _conditions(self, server: str) -> Conditions:
        templated = self.tokenizer is not None and self.tokenizer.chat_template is not None
        return Conditions(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=self.options.command,
            url=self.client.url,
            server=server,
            versions=read_versions(),
            models=dict(self.options.models),
            cpu=read_cpu(),
            cores=read_cores(),
            prompts=str(self.options.prompts_path or "built in"),
            prompt_format="chat template" if templated else "raw text",
            max_tokens=self.options.max_tokens,
            num_draft_tokens=self.num_draft_tokens,
            near_tie_gap=self.options.near_tie_gap,
            gpus=describe_gpus(),
        )


def _with_text(prompt: Prompt, text: str) -> Prompt:
    """The prompt with another last message."""
    return replace(prompt, text=text, turns=(*prompt.turns[:-1], Turn("user", text)) if prompt.turns else ())


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _interval(pairs: list[Pair]) -> Ratio | None:
    """The ratio of mean tokens/s over the prompts, with its confidence interval."""
    known = [(p, s) for pair in pairs if (p := pair.plain.tokens_per_s) and (s := pair.speculative.tokens_per_s)]
    return bootstrap_ratio([plain for plain, _ in known], [fast for _, fast in known], seed=0)


def _report_prompt(result: _Result) -> PromptReport:
    plain, speculative = result.pair.plain, result.pair.speculative
    return PromptReport(
        id=result.prompt.id,
        kind=result.prompt.kind,
        judgement=result.judgement,
        plain_is_reference=result.plain_is_reference,
        tokens=speculative.tokens,
        drafted=speculative.generation.drafted,
        accepted=speculative.generation.accepted,
        rounds=len(speculative.generation.rounds),
        plain_tokens_per_s=plain.tokens_per_s,
        speculative_tokens_per_s=speculative.tokens_per_s,
        plain_time_to_first_token_s=plain.time_to_first_token_s,
        speculative_time_to_first_token_s=speculative.time_to_first_token_s,
        text=speculative.generation.text,
    )


def _describe(result: _Result) -> str:
    speeds = [
        "-" if sample.tokens_per_s is None else f"{sample.tokens_per_s:.1f}"
        for sample in (result.pair.plain, result.pair.speculative)
    ]
    words = describe_judgement(result.judgement)
    return f"{result.prompt.id}: {words}; plain {speeds[0]}, speculative {speeds[1]} tokens/s"
