"""The sentence on top of a report, and what a reader must know of its figures. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trt_spec.errors import StepFailed
from trt_spec.verify.bench.results import BenchPoint, BenchReport, Recommendation
from trt_spec.verify.bench.settings import Setting
from trt_spec.verify.results import Ratio

FEW_BLOCKS = 3


def judge_bench(
    recommendations: Sequence[Recommendation], break_even: float | None, draft_len: int, interrupted: bool
) -> str:
    """Whether drafting pays, by how much, and up to which load."""
    ended = " Ended early: what follows is part of the bench." if interrupted else ""
    if not recommendations:
        return f"No draft length was measured against the target alone.{ended}"
    first = recommendations[0]
    load = f"with {first.concurrency} request{'s' if first.concurrency > 1 else ''} at once"
    if first.num_draft_tokens:
        assert first.speedup is not None
        text = f"{describe_ratio(first.speedup)} faster {load}, {first.num_draft_tokens} tokens drafted a round."
    else:
        text = f"Drafting does not pay {load} ({_gain(first.speedup)})."
    losing = [item.concurrency for item in recommendations[1:] if not item.num_draft_tokens]
    if break_even is not None and first.num_draft_tokens:
        text += f" {draft_len} drafted tokens break even at {break_even:.1f} at once."
    if losing:
        text += f" The target alone is best with {', '.join(map(str, losing))} at once."
    return text + ended


def _gain(ratio: Ratio | None) -> str:
    return "nothing measured" if ratio is None else f"at best {describe_ratio(ratio)}"


def describe_ratio(ratio: Ratio | None) -> str:
    """1.27x (1.20 to 1.33), or a dash."""
    return "-" if ratio is None else f"{ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


def collect_notes(points: Sequence[BenchPoint], planned: Collection[Setting]) -> tuple[str, ...]:
    """What limits the figures."""
    notes = [
        "Prompts were sent once before, so first tokens profit from cached prefixes on both sides.",
        "Intervals are 95 % by bootstrap over answers, paired by prompt and block; total tokens/s over blocks.",
    ]
    measured = {point.setting for point in points}
    missing = [setting.label for setting in planned if setting not in measured]
    if missing:
        notes.append(f"{len(missing)} of {len(planned)} settings were not measured: {'; '.join(missing)}.")
    fewest = min((point.blocks for point in points), default=0)
    if points and fewest < FEW_BLOCKS:
        notes.append(f"Some settings were measured in {fewest} block{'s' if fewest > 1 else ''}: take them as rough.")
    lost = sum(point.load.requests - point.load.answered for point in points)
    if lost:
        notes.append(f"{lost} of {sum(point.load.requests for point in points)} requests were not answered.")
    return tuple(notes)


def check_measured(report: BenchReport) -> None:
    """Raises StepFailed for a finished bench in which a whole setting went unanswered."""
    silent = [point for point in report.points if point.load.answered == 0]
    if silent and not report.interrupted:
        worst = next(iter(silent[0].load.errors), "no reason was given")
        raise StepFailed(
            f"Not one request was answered in {len(silent)} of {len(report.points)} settings; the first, "
            f"{silent[0].setting.label}: {worst}.",
            remedy="See the server's log; the report has the rest.",
        )
