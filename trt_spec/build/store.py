"""Outputs of steps: a folder counts only if its manifest is there and has the fingerprint that is planned now."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trt_spec.plan.steps import Step
from trt_spec.util.files import atomic_directory, digest_sha256

MANIFEST_FILE = "manifest.json"


def is_finished(folder: Path, fingerprint: str) -> bool:
    """Whether ``folder`` is the complete output of a step with this fingerprint: all its files, of the right size."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        return manifest["fingerprint"] == fingerprint and all(
            (folder / name).stat().st_size == entry["bytes"] for name, entry in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def run_step(
    step: Step,
    fingerprint: str,
    inputs: Mapping[str, str],
    tools: Mapping[str, str],
    folder: Path,
    make: Callable[[Path], None],
) -> None:
    """Runs ``make`` on a temporary folder and publishes it as ``folder``, its manifest written last."""
    started = time.monotonic()
    with atomic_directory(folder) as partial:
        make(partial)
        manifest: dict[str, Any] = {
            "fingerprint": fingerprint,
            "step": step.id,
            "kind": step.kind,
            "role": step.role,
            "source": step.source,
            "params": dict(step.params),
            "inputs": dict(inputs),
            "tools": dict(tools),
            "files": {
                file.name: {"bytes": file.stat().st_size, "sha256": digest_sha256(file)}
                for file in sorted(partial.iterdir())
            },
            "duration_s": round(time.monotonic() - started, 3),
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        (partial / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
