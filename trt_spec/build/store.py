"""Outputs of steps: a folder counts only if its manifest is there and has the fingerprint that is planned now."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trt_spec.plan.steps import Step
from trt_spec.util.files import (
    atomic_directory,
    digest_sha256,
    publish_directory,
    remove_partial_files,
    write_text_atomic,
)

MANIFEST_FILE = "manifest.json"
RESUME_SUFFIX = ".resume"
OUTPUT_NAME = "output"
_FINGERPRINT_SHOWN = 12
_DIGESTS_AT_ONCE = 4  # rank files of 100 GB: hashing lets the other cores work


@dataclass(frozen=True)
class Job:
    """A step with what decides its output: ``inputs`` are digests by name, ``tools`` versions by name."""

    step: Step
    folder: Path
    inputs: Mapping[str, str]
    tools: Mapping[str, str]
    fingerprint: str


def is_finished(folder: Path, fingerprint: str) -> bool:
    """Whether ``folder`` is the complete output of a step with this fingerprint: all its files, of the right size."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        return manifest["fingerprint"] == fingerprint and all(
            (folder / name).stat().st_size == entry["bytes"] for name, entry in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def load_record(folder: Path) -> dict[str, Any]:
    """The manifest of a finished step's folder."""
    record: dict[str, Any] = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    return record


def run_step(job: Job, make: Callable[[Path], Mapping[str, Any]], is_resumable: bool = False) -> None:
    """Runs ``make`` on a temporary folder and publishes it as ``job.folder``, its manifest written last.

    What ``make`` returns is recorded, too. A resumable step gets a folder that survives failures and kills, to go on
    in; one made for another fingerprint is removed.
    """
    started = time.monotonic()
    with _open(job, is_resumable) as output:
        if is_finished(output, job.fingerprint):  # killed just before it was published
            return
        extras = make(output)
        step = job.step
        manifest: dict[str, Any] = {
            "fingerprint": job.fingerprint,
            "step": step.id,
            "kind": step.kind,
            "role": step.role,
            "source": step.source,
            "params": dict(step.params),
            "argv": list(step.argv),
            "inputs": dict(job.inputs),
            "tools": dict(job.tools),
            "files": _describe(output),
            **extras,
            "duration_s": round(time.monotonic() - started, 3),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_text_atomic(output / MANIFEST_FILE, json.dumps(manifest, indent=2) + "\n")


def _open(job: Job, is_resumable: bool) -> AbstractContextManager[Path]:
    return _open_resumable(job) if is_resumable else atomic_directory(job.folder)


@contextmanager
def _open_resumable(job: Job) -> Iterator[Path]:
    """A path that ``make`` leaves a folder at, beside whatever it needs to go on after a kill."""
    name = f".{job.folder.name}.{job.fingerprint[:_FINGERPRINT_SHOWN]}{RESUME_SUFFIX}"
    remove_resumable(job.folder, keep=name)
    place = job.folder.absolute().with_name(name)
    place.mkdir(parents=True, exist_ok=True)
    remove_partial_files(place / OUTPUT_NAME / MANIFEST_FILE)
    yield place / OUTPUT_NAME
    publish_directory(place / OUTPUT_NAME, job.folder)
    shutil.rmtree(place)


def remove_resumable(folder: Path, keep: str = "") -> None:
    """Remove what unfinished resumable runs of a step left beside its folder, but for the one named ``keep``."""
    for place in folder.absolute().parent.glob(f".{folder.name}.*{RESUME_SUFFIX}"):
        if place.name != keep:
            shutil.rmtree(place, ignore_errors=True)


def _describe(folder: Path) -> dict[str, dict[str, Any]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_FILE)
    with ThreadPoolExecutor(_DIGESTS_AT_ONCE) as pool:
        digests = list(pool.map(digest_sha256, files))
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": digest}
        for path, digest in zip(files, digests, strict=True)
    }
