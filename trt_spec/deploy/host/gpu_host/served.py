"""What one backend contributes to serving on a GPU host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trt_spec.deploy.host.gpu_host.host import PlanLaunch


@dataclass(frozen=True)
class Served:
    """How its processes are planned, the folders that they read, and how long that may take."""

    plan: PlanLaunch
    folders: tuple[Path, ...]
    timeout_s: float
