"""How long a server may take to load what it reads at its start."""

from __future__ import annotations

from trt_spec.plan.manifest import Manifest
from trt_spec.plan.workspace import Workspace

LOAD_BASE_S = 300.0  # CUDA contexts, NCCL, graphs, memory and Python models of every rank
LOAD_BYTES_PER_S = 200e6  # a slow network volume, ten times less than a local disk: no start is given up while it reads


def load_time_s(read_bytes: int) -> float:
    """Seconds that reading ``read_bytes`` may take, with all that a start does besides. Not measured on GPU hosts."""
    return LOAD_BASE_S + read_bytes / LOAD_BYTES_PER_S


def sum_engine_bytes(manifest: Manifest, place: Workspace) -> int:
    """Bytes of the engines of a built workspace."""
    files = (file for role in manifest.engines for file in place.engine(role).glob("*.engine"))
    return sum(file.stat().st_size for file in files)
