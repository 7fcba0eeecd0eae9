"""What a verification has to reach."""

from __future__ import annotations

from dataclasses import dataclass

from trt_spec.spec.model import Lossless


@dataclass(frozen=True)
class Thresholds:
    """None asks for nothing. ``lossless`` strict takes no near-tie for an answer of the target."""

    min_speedup: float | None = None
    max_p99_ttft_ms: float | None = None
    lossless: Lossless = "near_tie"
