"""The plot of ``trtspec plan --plot``: predicted speed-up over draft length, a line for each batch size."""

from __future__ import annotations

from pathlib import Path

from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.speed import SpeedPrediction

SUFFIXES = (".png", ".svg")


def write_plot(speed: SpeedPrediction, title: str, path: Path) -> None:
    """Writes a PNG or SVG by the suffix of ``path``. Raises SpecError for another suffix."""
    if path.suffix not in SUFFIXES:
        raise SpecError(f"--plot {path}: expected a name that ends in {' or '.join(SUFFIXES)}.", remedy="Rename it.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentMissing(
            "The package matplotlib is not installed, and --plot needs it.",
            remedy="Run `pip install 'trtspec[plot]'`.",
        ) from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for row in speed.batches:
        axes.plot(range(len(row.speedup)), row.speedup, marker="o", markersize=3, label=f"batch {row.batch}")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xlabel("drafted tokens a round")
    axes.set_ylabel("predicted speed-up over the target alone")
    axes.set_title(f"{title}: acceptance {speed.acceptance.alpha:.2f} ({speed.acceptance.origin})")
    axes.legend()
    figure.savefig(path)
