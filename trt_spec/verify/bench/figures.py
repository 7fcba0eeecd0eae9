"""The plots of a report as SVG text: small enough for a phone, in colours that the page sets for light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trt_spec.errors import EnvironmentMissing
from trt_spec.verify.bench.assemble import points_under_load
from trt_spec.verify.bench.results import BenchPoint, BenchReport
from trt_spec.verify.bench.settings import PRIMARY, Setting

_SIZE_IN = (5.0, 3.4)  # 360 points wide: on a screen of 390 pixels letters keep their size
_FONT_POINTS = 11
# Written by matplotlib, then replaced by the page's own colours, which follow its light or dark mode.
_INK, _LINE = "#010203", "#040506"
_SERIES = ("#0a0101", "#0a0202", "#0a0303", "#0a0404", "#0a0505", "#0a0606")
_VARIABLES = {_INK: "var(--ink)", _LINE: "var(--line)", **{c: f"var(--series-{i})" for i, c in enumerate(_SERIES)}}
_MARKERS = "osD^vX"


@dataclass(frozen=True)
class Plot:
    """One plot: ``svg`` is the element alone, ready for a page; ``text`` says in words what it shows."""

    name: str
    title: str
    text: str
    svg: str


def check_matplotlib() -> None:
    """Raises EnvironmentMissing without matplotlib; to be asked before minutes are measured."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise EnvironmentMissing(
            "The package matplotlib is not installed, and the report's plots need it.",
            remedy="Run `pip install 'trtspec[plot]'`.",
        ) from None


def draw_plots(report: BenchReport) -> tuple[Plot, ...]:
    """All plots; one without data says so in its frame."""
    return tuple(_render(name, title, text, draw, report) for name, title, text, draw in _PLOTS)


def _render(name: str, title: str, text: str, draw: Callable[[Any, BenchReport], bool], report: BenchReport) -> Plot:
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none",  # text stays text: readable, searchable and in the page's font
        "svg.hashsalt": name,
        "font.size": _FONT_POINTS,
        "font.family": "sans-serif",
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _LINE,
        "axes.grid": True,
        "grid.color": _LINE,
        "grid.alpha": 0.35,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "legend.labelcolor": _INK,
        "legend.frameon": False,
        "axes.prop_cycle": cycler(color=_SERIES),
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=_SIZE_IN, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        if draw(axes, report):
            handles, labels = axes.get_legend_handles_labels()
            if handles:
                axes.legend(handles, labels, fontsize=_FONT_POINTS)
        else:
            axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)
        out = io.StringIO()
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return Plot(name, title, text, _inline(out.getvalue(), name, title))


def _inline(svg: str, name: str, title: str) -> str:
    """Without the parts of a file of its own, with ids of its own, as wide as the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\1{name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    # The size in points stays in viewBox alone.
    svg = re.sub(r' (?:width|height)="[^"]*pt"', "", svg, count=2)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" class="plot" ', 1)


def _mark(axes: Any, index: int, xs: Sequence[float], ys: Sequence[float], label: str, **more: Any) -> None:
    style = {"linewidth": 1.8, "markersize": 5, **more}
    axes.plot(xs, ys, marker=_MARKERS[index % len(_MARKERS)], label=label, color=_SERIES[index % len(_SERIES)], **style)


def _errors(axes: Any, index: int, points: Sequence[BenchPoint], xs: Sequence[float], ratios: Sequence[Any]) -> None:
    lows = [max(0.0, ratio.value - ratio.low) for ratio in ratios]
    highs = [max(0.0, ratio.high - ratio.value) for ratio in ratios]
    ys = [ratio.value for ratio in ratios]
    axes.errorbar(xs, ys, yerr=(lows, highs), fmt="none", ecolor=_SERIES[index], capsize=3, linewidth=1)


def _break_even_line(axes: Any) -> None:
    axes.axhline(1.0, color=_INK, linewidth=1, linestyle=":")


def _draw_draft_len(axes: Any, report: BenchReport) -> bool:
    points = [point for point in points_under_load(report.points, 1) if point.decode_speedup]
    points.sort(key=lambda point: point.setting.num_draft_tokens or 0)
    if not points:
        return False
    xs = [point.setting.num_draft_tokens or 0 for point in points]
    ratios = [point.decode_speedup for point in points]
    _mark(axes, 0, [0, *xs], [1.0, *(ratio.value for ratio in ratios if ratio)], "measured")
    _errors(axes, 0, points, xs, ratios)
    known = [(x, p) for x, point in zip(xs, points, strict=True) if (p := point.predicted_decode_speedup) is not None]
    if known:
        _mark(axes, 1, [x for x, _ in known], [p for _, p in known], "predicted", linestyle="--")
    _break_even_line(axes)
    axes.set_xlabel("drafted tokens a round")
    axes.set_ylabel("speed-up, 1 request")
    axes.set_xticks([0, *xs])
    return True


def _draw_positions(axes: Any, report: BenchReport) -> bool:
    drawn = 0
    longest: dict[str, BenchPoint] = {}
    for point in report.points:
        setting = point.setting
        if setting == Setting(setting.system, setting.num_draft_tokens) and setting.num_draft_tokens:
            held = longest.get(setting.system)
            if held is None or (held.setting.num_draft_tokens or 0) < setting.num_draft_tokens:
                longest[setting.system] = point
    for system, point in longest.items():
        acceptance = point.load.acceptance
        if acceptance and acceptance.per_position_acceptance_rate:
            rates = acceptance.per_position_acceptance_rate
            _mark(axes, drawn, range(1, len(rates) + 1), rates, f"draft {system}")
            axes.set_xticks(range(1, len(rates) + 1))
            drawn += 1
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("position of the drafted token")
    axes.set_ylabel("share of rounds that kept it")
    return bool(drawn)


def _draw_prompts(axes: Any, report: BenchReport) -> bool:
    rows: dict[str, list[tuple[int, float]]] = {}
    for point in report.points:
        setting, acceptance = point.setting, point.load.acceptance
        if setting.prompt_tokens is not None and setting.num_draft_tokens and acceptance and acceptance.alpha:
            rows.setdefault(setting.system, []).append((setting.prompt_tokens, acceptance.alpha))
    for index, (system, pairs) in enumerate(rows.items()):
        pairs.sort()
        _mark(axes, index, [x for x, _ in pairs], [y for _, y in pairs], f"draft {system}")
    if rows:
        _log_axis(axes, sorted({x for pairs in rows.values() for x, _ in pairs}))
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("prompt, tokens")
    axes.set_ylabel("alpha")
    return bool(rows)


def _log_axis(axes: Any, ticks: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


def _by_length(report: BenchReport) -> dict[int, list[BenchPoint]]:
    """Points of the system as deployed at rising concurrency, by draft length, where there is more than one."""
    rows: dict[int, list[BenchPoint]] = {}
    for point in sorted(report.points, key=lambda point: point.setting.concurrency):
        setting = point.setting
        length = setting.num_draft_tokens
        if length is not None and setting == Setting(PRIMARY, length, setting.concurrency):
            rows.setdefault(length, []).append(point)
    return {length: points for length, points in sorted(rows.items()) if len(points) > 1}


def _draw_concurrency(axes: Any, report: BenchReport) -> bool:
    rows = {length: [p for p in points if p.speedup] for length, points in _by_length(report).items() if length}
    for index, (length, points) in enumerate(rows.items()):
        xs = [point.setting.concurrency for point in points]
        _mark(axes, index, xs, [p.speedup.value for p in points if p.speedup], f"{length} drafted")
        _errors(axes, index % len(_SERIES), points, xs, [point.speedup for point in points])
    if rows:
        _log_axis(axes, sorted({point.setting.concurrency for points in rows.values() for point in points}))
        _break_even_line(axes)
        if report.break_even_concurrency is not None:
            axes.axvline(report.break_even_concurrency, color=_INK, linewidth=1, linestyle="--")
            axes.annotate(
                f" break-even {report.break_even_concurrency:.1f} ",
                (report.break_even_concurrency, axes.get_ylim()[1]),
                va="top",
                ha="right" if report.break_even_concurrency > 2 else "left",
                fontsize=_FONT_POINTS,
            )
    axes.set_xlabel("requests at once")
    axes.set_ylabel("speed-up of a user")
    return bool(rows)


def _draw_latency(axes: Any, report: BenchReport) -> bool:
    rows = _by_length(report)
    drawn = False
    for index, (length, points) in enumerate(rows.items()):
        known = [
            (point.median_tokens_per_s, 1000 * point.load.inter_token_latency_s.p50)
            for point in points
            if point.median_tokens_per_s is not None and point.load.inter_token_latency_s is not None
        ]
        if known:
            drawn = True
            name = "target alone" if length == 0 else f"{length} drafted"
            _mark(axes, index, [x for x, _ in known], [y for _, y in known], name)
    axes.set_xlabel("tokens/s of all requests together")
    axes.set_ylabel("ms a token, median")
    axes.set_ylim(bottom=0)
    return drawn


def describe_prediction(report: BenchReport) -> str:
    """How far the predictions are from what was measured, in words; empty without any."""
    gaps = [
        abs(point.predicted_decode_speedup / point.decode_speedup.value - 1)
        for point in report.points
        if point.predicted_decode_speedup and point.decode_speedup
    ]
    if not gaps:
        return ""
    return (
        f"Predicted and measured differ by {max(gaps):.0%} at most, {sorted(gaps)[len(gaps) // 2]:.0%} in the middle."
    )


_PLOTS = (
    (
        "draft-len",
        "Speed-up over draft length",
        "Tokens/s after the first token over those without drafts, one request at a time, with 95 % intervals. The "
        "dashed line is the plan's formula with the measured acceptance and step times.",
        _draw_draft_len,
    ),
    (
        "positions",
        "Acceptance by position",
        "Of the rounds that drafted so many tokens, the share that kept the token at this position.",
        _draw_positions,
    ),
    (
        "prompts",
        "Acceptance by prompt length and draft",
        "The per-token probability alpha over the length of the prompt, a line for each draft.",
        _draw_prompts,
    ),
    (
        "concurrency",
        "Speed-up over concurrency",
        "Tokens/s of one user over those without drafts under the same load; below the dotted line drafts cost time.",
        _draw_concurrency,
    ),
    (
        "latency",
        "Latency over throughput",
        "Each line joins rising numbers of requests at once: right is more throughput, up is slower for each user.",
        _draw_latency,
    ),
)
