"""The report of a verification: one JSON document, a Markdown page and a table for the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trt_spec.util.files import write_text_atomic
from trt_spec.verify.acceptance import Acceptance
from trt_spec.verify.judge import Judgement, RunVerdict
from trt_spec.verify.lossless.faults import WORDS
from trt_spec.verify.lossless.probes import Probes
from trt_spec.verify.measure import ModelAlone, Side
from trt_spec.verify.results import Distribution, LoadSummary, MachineLoad, MetricsDelta, Ratio
from trt_spec.verify.thresholds import Thresholds
from trt_spec.verify.under_load import load_rows

if TYPE_CHECKING:
    from rich.console import Console

DIRECT_REFERENCE = "target engine called directly"
ORCHESTRATOR_REFERENCE = "orchestrator without drafts"
INSIDE = "which drafts with its own heads as well: compare with a deployment of speculation.mode none"


@dataclass(frozen=True)
class PromptReport:
    """One prompt: its verdict, what both sides measured, and the text that came back with speculation."""

    id: str
    kind: str
    judgement: Judgement
    plain_is_reference: bool
    tokens: int
    drafted: int
    accepted: int
    rounds: int
    plain_tokens_per_s: float | None
    speculative_tokens_per_s: float | None
    plain_time_to_first_token_s: float | None
    speculative_time_to_first_token_s: float | None
    text: str


@dataclass(frozen=True)
class Conditions:
    """Under what conditions the figures hold."""

    date: str
    command: str
    url: str
    server: str
    versions: dict[str, str]
    models: dict[str, str]
    cpu: str
    cores: int
    prompts: str
    prompt_format: str
    max_tokens: int
    num_draft_tokens: int | None
    near_tie_gap: float
    gpus: str = ""


@dataclass(frozen=True)
class Report:
    """Everything ``trtspec verify`` found.

    ``speedup`` is speculative / plain in total tokens per total second; ``speedup_of_medians`` divides the medians over
    prompts; ``speedup_of_pairs`` is the median over prompts of the ratio within each, which noise disturbs least.
    ``drafts_inside``: the target's own heads draft, on both sides and without counts.
    """

    lossless: bool
    acceptance: Acceptance
    plain: Side
    speculative: Side
    speedup: float | None
    speedup_of_medians: float | None
    speedup_of_pairs: float | None
    verdict: RunVerdict
    reference: str
    target_alone: ModelAlone | None
    draft_alone: ModelAlone | None
    prompts: tuple[PromptReport, ...]
    conditions: Conditions
    speedup_interval: Ratio | None = None
    drafts_inside: bool = False
    speculative_time_to_first_token_s: Distribution | None = None
    machine: MachineLoad | None = None
    server_metrics: MetricsDelta | None = None
    probes: Probes = field(default_factory=Probes)
    thresholds: Thresholds = field(default_factory=Thresholds)
    under_load: LoadSummary | None = None


def describe_judgement(judgement: Judgement) -> str:
    """A verdict on one prompt in words."""
    if judgement.position is None:
        return "same"
    expected, found = (
        "the end" if token is None else f"token {token}" for token in (judgement.expected_token, judgement.found_token)
    )
    gap = "logit gap unknown" if judgement.gap is None else f"logit gap {judgement.gap:.2g}"
    word = "near-tie" if judgement.outcome == "near_tie" else "different"
    fault = f": {WORDS[judgement.fault]}" if judgement.fault else ""
    return f"{word} at position {judgement.position}, expected {expected}, found {found}, {gap}{fault}"


def render_json(report: Report) -> str:
    """The report as one JSON document with a newline at its end."""
    return json.dumps(asdict(report), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def write_report(report: Report, folder: Path) -> None:
    """Writes report.json and report.md into the folder, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomic(folder / "report.json", render_json(report))
    write_text_atomic(folder / "report.md", render_markdown(report))


def render_markdown(report: Report) -> str:
    """The report as a Markdown page."""
    lines = [f"# Verification: {verdict_line(report)}", ""]
    lines += _markdown_table(("", *_SPEED_COLUMNS), _speed_rows(report))
    lines += ["", "## Acceptance", "", *_markdown_table(("figure", "value"), _acceptance_rows(report.acceptance))]
    if report.under_load:
        lines += ["", "## Under load", "", *_markdown_table(_LOAD_COLUMNS, load_rows(report.under_load))]
    lines += ["", "## Probes", "", *_markdown_table(("probe", "found"), probe_rows(report.probes))]
    lines += ["", "## Prompts", "", *_markdown_table(_PROMPT_COLUMNS, _prompt_rows(report))]
    lines += ["", "## Conditions", "", *_markdown_table(("what", "value"), _condition_rows(report)), ""]
    return "\n".join(lines)


def print_report(report: Report, console: Console) -> None:
    """The table for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    for title, columns, rows in (
        ("speed", ("", *_SPEED_COLUMNS), _speed_rows(report)),
        ("acceptance", ("figure", "value"), _acceptance_rows(report.acceptance)),
        ("under load", _LOAD_COLUMNS, load_rows(report.under_load) if report.under_load else []),
        ("probes", ("probe", "found"), probe_rows(report.probes)),
        ("prompts", _PROMPT_COLUMNS, _prompt_rows(report)),
    ):
        if not rows:
            continue
        table = Table(title=title, title_justify="left")
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
        for row in rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
    console.print(escape(verdict_line(report)), style="green" if report.verdict.passed else "red", highlight=False)


def verdict_line(report: Report) -> str:
    """The outcome in one line."""
    verdict = report.verdict
    words = {
        "lossless": "lossless",
        "different": "OUTPUT DIFFERS",
        "never_drafted": "NOTHING WAS DRAFTED",
    }[verdict.verdict]
    counts = f"{verdict.same} same, {verdict.near_tie} near-tie, {verdict.different} different"
    return f"{words} ({counts}; reference: {report.reference}), speedup {_number(report.speedup, 'x')}"


_SPEED_COLUMNS = ("tokens/s", "median", "first token", "tokens", "seconds")
_LOAD_COLUMNS = ("figure", "p50", "p90", "p99")
_PROMPT_COLUMNS = ("prompt", "verdict", "tokens", "accepted / drafted", "plain", "speculative")


def _speed_rows(report: Report) -> list[tuple[str, ...]]:
    rows = [
        _side_row("plain (target alone)", report.plain),
        _side_row("with speculation", report.speculative),
        ("ratio", _number(report.speedup, "x"), _number(report.speedup_of_medians, "x"), "", "", ""),
        ("median ratio per prompt", "", _number(report.speedup_of_pairs, "x"), "", "", ""),
    ]
    for what, alone in (
        ("target, called directly", report.target_alone),
        ("draft alone (not the same model)", report.draft_alone),
    ):
        if alone is not None:
            rows.append((what, _number(alone.tokens_per_s), "", "", str(alone.tokens), f"{alone.seconds:.1f}"))
    return rows


def _side_row(what: str, side: Side) -> tuple[str, ...]:
    first = side.median_time_to_first_token_s
    first_token = "-" if first is None else f"{first * 1000:.0f} ms"
    speeds = (_number(side.tokens_per_s), _number(side.median_tokens_per_s))
    return (what, *speeds, first_token, str(side.tokens), f"{side.seconds:.1f}")


def _acceptance_rows(acceptance: Acceptance) -> list[tuple[str, str]]:
    positions = ", ".join(f"{rate:.2f}" for rate in acceptance.per_position_acceptance_rate)
    histogram = ", ".join(f"{length}: {count}" for length, count in acceptance.acceptance_length_histogram.items())
    return [
        ("mean acceptance length (tokens a round)", _number(acceptance.mean_acceptance_length)),
        ("draft acceptance rate (accepted/drafted)", _number(acceptance.draft_acceptance_rate)),
        ("alpha (per-token probability, estimated)", _number(acceptance.alpha)),
        ("per-position acceptance rate", positions or "-"),
        ("acceptance lengths (tokens: rounds)", histogram or "-"),
        ("rounds, drafted, accepted", f"{acceptance.rounds}, {acceptance.drafted}, {acceptance.accepted}"),
    ]


def probe_rows(probes: Probes) -> list[tuple[str, str]]:
    """What each probe found, in words; a row for each that was run."""
    rows = []
    if probes.draft_executions is not None:
        rows.append(("requests that the draft model served", str(probes.draft_executions)))
    for item in probes.sampled:
        lowest = min(item.p_values)
        verdict = WORDS[item.fault] if item.fault else "no difference"
        rows.append(
            (f"sampled answers of {item.prompt}", f"{verdict} ({item.samples} a side, smallest p {lowest:.2g})")
        )
    if probes.isolation:
        leaks, count = len(probes.isolation.leaks), probes.isolation.requests
        rows.append(("words of other requests", f"{leaks} in {count} answers, {probes.isolation.concurrency} at once"))
    if probes.noise:
        noise = probes.noise
        counts = f"{noise.same} same, {noise.near_tie} near-tie, {noise.different} different"
        rows.append(("the target alone against itself in a batch", counts))
    if probes.fuzz:
        fuzz = probes.fuzz
        fate = f"the server did not survive {fuzz.fatal}" if fuzz.fatal else "the server lives"
        rows.append(("odd prompts", f"{fuzz.answered} answered, {fuzz.refused} refused, {fate}"))
    return rows


def _prompt_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            prompt.id,
            describe_judgement(prompt.judgement),
            str(prompt.tokens),
            f"{prompt.accepted} / {prompt.drafted}",
            _number(prompt.plain_tokens_per_s),
            _number(prompt.speculative_tokens_per_s),
        )
        for prompt in report.prompts
    ]


def _condition_rows(report: Report) -> list[tuple[str, str]]:
    rows = []
    for key, value in asdict(report.conditions).items():
        text = ", ".join(f"{name} {item}" for name, item in value.items()) if isinstance(value, dict) else str(value)
        rows.append((key.replace("_", " "), text))
    return rows


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.2f}{unit}"


def _markdown_table(header: tuple[str, ...], rows: list[tuple[str, ...]] | list[tuple[str, str]]) -> list[str]:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(header), "|" + "---|" * len(header), *(line(tuple(row)) for row in rows)]
