"""What machine and versions a report was made on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from trt_spec import __version__

_PACKAGES = ("tritonclient", "nvidia-pytriton", "onnxruntime")


def read_versions() -> dict[str, str]:
    """Versions of trtspec, Python and, where installed, of the packages that shape the figures."""
    versions = {"trtspec": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def read_cpu() -> str:
    """The processor's name of this machine, which is the client's: the server may run elsewhere."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def read_cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
