"""Asking the NVIDIA driver's own program about the GPUs of this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

NVIDIA_SMI = "nvidia-smi"
ASK_TIMEOUT_S = 30.0  # it takes seconds where no persistence daemon holds the driver


def query_gpus(fields: Sequence[str]) -> str:
    """A line of comma-separated values for each GPU, without units; empty where nvidia-smi is missing or fails."""
    program = shutil.which(NVIDIA_SMI)
    if program is None:
        return ""
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
