"""Two bench reports compared, setting by setting: what became slower or is accepted less, beyond chance. Pure.

Many settings are looked at, so each is judged at 1 - 0.05 / n (Bonferroni): with nothing changed, one comparison in
twenty shows any regression at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean

from trt_spec.errors import SpecError
from trt_spec.verify.acceptance import Acceptance
from trt_spec.verify.bench.assemble import find_point
from trt_spec.verify.bench.results import SCHEMA_VERSION, BenchPoint, BenchReport
from trt_spec.verify.bench.settings import Setting
from trt_spec.verify.bootstrap import bootstrap_ratio
from trt_spec.verify.results import Ratio

_CHANCE = 0.05
_RESAMPLES = 20_000


@dataclass(frozen=True)
class Change:
    """One setting in both reports. ``speed`` is B / A of tokens/s of one user; ``alpha_*`` None where not measured."""

    setting: Setting
    speed: Ratio | None
    alpha_a: float | None
    alpha_b: float | None
    alpha_significant: bool

    @property
    def is_regression(self) -> bool:
        slower = self.speed is not None and self.speed.significant and self.speed.value < 1
        return slower or (self.alpha_significant and (self.alpha_b or 0.0) < (self.alpha_a or 0.0))


@dataclass(frozen=True)
class ReportComparison:
    """``unmatched`` counts settings that only one of the reports has; ``differences`` names conditions that changed."""

    changes: tuple[Change, ...]
    unmatched: int
    differences: tuple[str, ...]

    @property
    def regressions(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.is_regression)


def load_report(path: Path) -> BenchReport:
    """A bench.json. Raises SpecError for what is none, or of another schema version."""
    from pydantic import TypeAdapter, ValidationError

    try:
        report: BenchReport = TypeAdapter(BenchReport).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        detail = error.strerror if isinstance(error, OSError) else _first(error)
        raise SpecError(
            f"{path} is no report of trtspec bench: {detail}.", remedy="Give the bench.json of two reports."
        ) from error
    if report.schema_version != SCHEMA_VERSION:
        raise SpecError(
            f"{path} is of schema version {report.schema_version}, this trtspec reads {SCHEMA_VERSION}.",
            remedy="Compare with the trtspec that made it, or measure again.",
        )
    return report


def _first(error: object) -> str:
    rows = error.errors() if hasattr(error, "errors") else []
    return f"{'.'.join(map(str, rows[0]['loc'])) or 'document'}: {rows[0]['msg']}" if rows else str(error)


def compare_reports(a: BenchReport, b: BenchReport) -> ReportComparison:
    """B against A over the settings that both have. Raises SpecError when there are none."""
    pairs = [(point, other) for point in a.points if (other := find_point(b.points, point.setting)) is not None]
    if not pairs:
        raise SpecError(
            "The two reports have no setting in common.", remedy="Run both with the same --sweep, or both --quick."
        )
    confidence = 1 - _CHANCE / (2 * len(pairs))  # a speed and an acceptance each
    changes = tuple(_compare(left, right, confidence) for left, right in pairs)
    unmatched = len(a.points) + len(b.points) - 2 * len(pairs)
    return ReportComparison(changes, unmatched, _conditions(a, b))


def _compare(a: BenchPoint, b: BenchPoint, confidence: float) -> Change:
    """Prompts are the units: each gives one pair of means, so repeated blocks do not count as new prompts."""
    shared = sorted(set(a.samples) & set(b.samples))
    lefts, rights = [fmean(a.samples[name]) for name in shared], [fmean(b.samples[name]) for name in shared]
    speed = bootstrap_ratio(lefts, rights, seed=0, confidence=confidence, resamples=_RESAMPLES)
    left, right = a.load.acceptance, b.load.acceptance
    return Change(
        a.setting,
        speed,
        left.alpha if left else None,
        right.alpha if right else None,
        alpha_differs(left, right, confidence),
    )


def alpha_differs(a: Acceptance | None, b: Acceptance | None, confidence: float) -> bool:
    """Whether two alphas differ beyond chance (two-proportion z-test over the tokens that were decided on)."""
    if a is None or b is None or a.alpha is None or b.alpha is None:
        return False
    decided = [item.accepted / item.alpha if item.alpha else float(item.rounds) for item in (a, b)]
    pooled = (a.accepted + b.accepted) / sum(decided)
    error = (pooled * (1 - pooled) * (1 / decided[0] + 1 / decided[1])) ** 0.5
    limit = NormalDist().inv_cdf(1 - (1 - confidence) / 2)
    return bool(error > 0 and abs(a.alpha - b.alpha) / error > limit)


def _conditions(a: BenchReport, b: BenchReport) -> tuple[str, ...]:
    names = ("spec", "versions", "cpu", "cores", "gpus", "server", "prompts", "output_tokens", "seed", "commit")
    found = []
    for name in names:
        left, right = getattr(a.conditions, name), getattr(b.conditions, name)
        if left != right:
            found.append(name if isinstance(left, dict) else f"{name}: {left or 'none'} -> {right or 'none'}")
    return tuple(found)
