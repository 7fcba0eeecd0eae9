"""What a bench reports: frozen dataclasses of plain values; ``bench_schema.json`` is generated from them.

Times are seconds. None means "could not be known" or "was not measured", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trt_spec.plan.measured_speed import MeasuredSteps
from trt_spec.verify.bench.settings import Setting
from trt_spec.verify.results import LoadSummary, MachineLoad, MetricsDelta, Ratio

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class BenchPoint:
    """One setting over all its blocks.

    ``speedup`` is the ratio of tokens/s of one user to those without drafts under the same load, ``decode_speedup`` the
    same without the wait for the first token, ``total_speedup`` that of all users together, over blocks. ``samples``
    holds tokens/s of every answer by prompt, for comparisons with other reports.
    """

    setting: Setting
    sweeps: tuple[str, ...]
    blocks: int
    load: LoadSummary
    median_tokens_per_s: float | None
    speedup: Ratio | None
    decode_speedup: Ratio | None
    total_speedup: Ratio | None
    predicted_decode_speedup: float | None
    samples: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Recommendation:
    """The draft length for a load: the fastest measured one, 0 unless its gain is beyond chance."""

    concurrency: int
    num_draft_tokens: int
    speedup: Ratio | None
    measured_lengths: tuple[int, ...]


@dataclass(frozen=True)
class BenchConditions:
    """Where and how the figures were made. ``spec`` is the whole spec with its defaults."""

    date: str
    command: str
    commit: str
    spec: dict[str, Any]
    systems: dict[str, str]
    server: str
    versions: dict[str, str]
    cpu: str
    cores: int
    gpus: str
    prompts: str
    output_tokens: int
    requests: int
    seed: int
    planned_blocks: int
    budget_s: float | None


@dataclass(frozen=True)
class BenchReport:
    """Everything that a bench found. ``interrupted``: it was ended early, and holds what was whole by then."""

    schema_version: int
    verdict: str
    interrupted: bool
    seconds: float
    conditions: BenchConditions
    points: tuple[BenchPoint, ...]
    steps: tuple[MeasuredSteps, ...]
    break_even_concurrency: float | None
    recommendations: tuple[Recommendation, ...]
    notes: tuple[str, ...]
    machine: MachineLoad | None
    server_metrics: MetricsDelta
