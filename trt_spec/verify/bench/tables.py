"""The tables of a report as words, for page, Markdown and terminal alike. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trt_spec.verify.bench.regression import ReportComparison
from trt_spec.verify.bench.results import BenchPoint, BenchReport
from trt_spec.verify.bench.settings import PRIMARY, SWEEPS
from trt_spec.verify.bench.verdict import describe_ratio
from trt_spec.verify.results import Distribution

TITLES = {
    "draft_len": "Draft length",
    "concurrency": "Concurrency",
    "prompt_tokens": "Prompt length",
    "temperature": "Temperature",
    "draft": "Drafts",
    "accept": "Acceptance mode",
}


@dataclass(frozen=True)
class Table:
    """Rows of words under ``columns``."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_POINT_COLUMNS = (
    "system",
    "drafted",
    "at once",
    "prompt",
    "temp.",
    "tokens/s",
    "speed-up",
    "after 1st token",
    "predicted",
    "alpha",
    "accept. length",
    "TTFT p50 ms",
    "TTFT p99 ms",
    "ms/token p50",
    "ms/token p99",
    "not answered",
    "blocks",
)


def tabulate(report: BenchReport) -> tuple[Table, ...]:
    """What is recommended, then one table a sweep, then step times."""
    tables = [
        Table(
            "Recommended draft length",
            ("requests at once", "draft length", "best measured speed-up", "lengths measured"),
            tuple(
                (str(r.concurrency), str(r.num_draft_tokens), describe_ratio(r.speedup), _listed(r.measured_lengths))
                for r in report.recommendations
            ),
        )
    ]
    for name in SWEEPS:
        points = sorted((point for point in report.points if name in point.sweeps), key=_place)
        rows = tuple(map(_row, points))
        tables.append(Table(TITLES[name], _POINT_COLUMNS, rows))
    tables.append(
        Table(
            "Step times",
            (
                "at once",
                "target, ms a token",
                "draft call, ms by length",
                "verification, ms by length",
                "prompt, ms to read",
            ),
            tuple(
                (
                    str(s.batch),
                    f"{1000 * s.plain_token_s:.1f}",
                    _times(s.draft_s),
                    _times(s.verify_s),
                    f"target: {1000 * s.read_s:.0f}, draft: {1000 * s.draft_read_s:.0f}",
                )
                for s in report.steps
            ),
        )
    )
    return tuple(table for table in tables if table.rows)


def _place(point: BenchPoint) -> tuple[float, ...]:
    """Rows of one load stand together, by rising draft length, the server's own choice last; systems as they ran."""
    setting = point.setting
    length = float("inf") if setting.num_draft_tokens is None else setting.num_draft_tokens
    is_other = setting.system != PRIMARY
    return (is_other, setting.prompt_tokens or 0, setting.temperature or 0.0, setting.concurrency, length)


def _row(point: BenchPoint) -> tuple[str, ...]:
    setting, load = point.setting, point.load
    acceptance = load.acceptance if setting.num_draft_tokens != 0 else None
    first, between = load.time_to_first_token_s, load.inter_token_latency_s
    return (
        setting.system,
        "default" if setting.num_draft_tokens is None else str(setting.num_draft_tokens),
        str(setting.concurrency),
        "as is" if setting.prompt_tokens is None else str(setting.prompt_tokens),
        f"{setting.temperature or 0:g}",
        number(point.median_tokens_per_s, 1),
        describe_ratio(point.speedup),
        describe_ratio(point.decode_speedup),
        number(point.predicted_decode_speedup, 2, "x"),
        number(acceptance.alpha if acceptance else None, 3),
        number(acceptance.mean_acceptance_length if acceptance else None, 2),
        *(_ms(first, name) for name in ("p50", "p99")),
        *(_ms(between, name) for name in ("p50", "p99")),
        str(load.requests - load.answered),
        str(point.blocks),
    )


def tabulate_comparison(comparison: ReportComparison) -> Table:
    """One row a setting that both reports have, regressions first."""
    ordered = sorted(comparison.changes, key=lambda change: not change.is_regression)
    rows = tuple(
        (
            change.setting.label,
            describe_ratio(change.speed),
            number(change.alpha_a, 3),
            number(change.alpha_b, 3),
            "regression" if change.is_regression else "",
        )
        for change in ordered
    )
    return Table("B over A", ("setting", "tokens/s of a user", "alpha A", "alpha B", "verdict"), rows)


def number(value: float | None, digits: int, unit: str = "") -> str:
    """The value, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def _ms(values: Distribution | None, name: str) -> str:
    return "-" if values is None else f"{1000 * getattr(values, name):.1f}"


def _times(values: dict[int, float]) -> str:
    return ", ".join(f"{length}: {1000 * seconds:.1f}" for length, seconds in sorted(values.items()))


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))
