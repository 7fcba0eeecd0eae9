"""`trtspec convert`: a Hugging Face checkpoint to TensorRT-LLM rank files, several at a time, resumable by rank."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trt_spec import __version__
from trt_spec.build.checkpoint.config import render_config
from trt_spec.build.checkpoint.options import ConvertOptions, Resolved, resolve_conversion
from trt_spec.build.checkpoint.outputs import RankPlan
from trt_spec.build.checkpoint.shard import plan_ranks
from trt_spec.build.checkpoint.source import MappedSource, Source, load_source, with_heads
from trt_spec.build.checkpoint.workplace import FinishedRank, Workplace, check_output, open_workplace
from trt_spec.build.checkpoint.write import Work, write_rank
from trt_spec.build.source.shards import load_json_object
from trt_spec.build.store import MANIFEST_FILE, is_finished
from trt_spec.errors import EnvironmentMissing, StepFailed
from trt_spec.plan.fingerprint import resolve_fingerprint
from trt_spec.util.files import digest_sha256

# Part of a conversion's identity: raise it when it writes different bytes.
CONVERT_VERSION = 1
CONFIG_NAME = "config.json"
REPORT_EVERY_S = 0.2
_HASHED_KEYS = ("config.json", "hf_quant_config.json")


@dataclass(frozen=True)
class Progress:
    """How far a conversion is; ``done_bytes`` of ``total_bytes`` are written, those of an earlier run included."""

    done_bytes: int
    total_bytes: int
    rate_bytes_per_s: float
    remaining_s: float | None


@dataclass(frozen=True)
class Converted:
    """A finished checkpoint; ``reused`` are the rank files of an earlier run, all of them if nothing was to do."""

    output: Path
    total_bytes: int
    duration_s: float
    ranks: int
    reused: tuple[str, ...]
    warnings: tuple[str, ...]
    dialect: str
    dialect_basis: str


def run_convert(options: ConvertOptions, report: Callable[[Progress], None]) -> Converted:
    """Convert ``options.model``, a local folder, into ``options.output``.

    Everything that can be known from headers is checked before anything is written. Raises SpecError for a source or
    options that do not fit, EnvironmentMissing for too little space, StepFailed if writing fails; ranks finished by
    then are kept for the next run of the same command.
    """
    started = time.monotonic()
    source = load_source(options.model)
    if options.medusa is not None and options.medusa.heads is not None:
        source = with_heads(source, options.medusa.heads)
    resolved = resolve_conversion(options, source)
    plans = plan_ranks(resolved.sharding, source.tensors)
    params, inputs = _identify(options, resolved, source)
    fingerprint = resolve_fingerprint("convert", params, inputs, {"trtspec convert": str(CONVERT_VERSION)})
    job = Job(options, resolved, source, plans, report)
    reused = tuple(plan.file_name for plan in plans)
    if not is_finished(options.output, fingerprint):
        check_output(options.output)
        _check_scalars(source, plans)
        with open_workplace(options.output, fingerprint) as place:
            if not is_finished(place.root, fingerprint):
                earlier = place.load_finished()
                _check_space(place, plans, earlier)
                finished = _write_ranks(place, earlier, job)
                reused = tuple(earlier)
                warnings = _collect_warnings(resolved, finished)
                manifest = {"fingerprint": fingerprint, **_render_manifest(job, params, inputs, warnings, started)}
                _write_small_files(place, job, finished, manifest)
            place.publish()
    warnings = tuple(load_json_object(options.output / MANIFEST_FILE)["warnings"])
    seconds = time.monotonic() - started
    return Converted(options.output, job.total_bytes, seconds, len(plans), reused, warnings, *resolved.dialect)


@dataclass(frozen=True)
class Job:
    """What writing the ranks needs to know of the conversion."""

    options: ConvertOptions
    resolved: Resolved
    source: Source
    plans: tuple[RankPlan, ...]
    report: Callable[[Progress], None]

    @property
    def total_bytes(self) -> int:
        """Bytes of all rank files."""
        return sum(plan.total_bytes for plan in self.plans)


def _identify(options: ConvertOptions, resolved: Resolved, source: Source) -> tuple[dict[str, Any], dict[str, str]]:
    """What decides the bytes: the resolved options, the small files by content, the shards by size and time."""
    sharding = resolved.sharding
    split = sharding.split
    params: dict[str, Any] = {
        "tensor_parallel": split.tensor_parallel,
        "pipeline_parallel": split.pipeline_parallel,
        "dtype": split.dtype,
        "quantization": split.quantization,
        "kv_cache_dtype": split.kv_cache_dtype,
        "meta_recipe": split.meta_recipe,
        "embedding_axis": split.embedding_axis,
        "tensorrt_llm": options.tensorrt_llm,
        "dialect": split.dialect,
    }
    if split.medusa is not None:
        params["medusa"] = {**asdict(split.medusa), "max_draft_len": sharding.max_draft_len}
    inputs = {name: digest_sha256(source.folder / name) for name in _HASHED_KEYS if (source.folder / name).is_file()}
    for shard in source.shards:
        status = shard.stat()
        name = shard.name if shard.parent == source.folder else f"heads/{shard.name}"
        inputs[name] = f"{status.st_size} bytes, modified {status.st_mtime_ns} ns"
    return params, inputs


def _check_scalars(source: Source, plans: tuple[RankPlan, ...]) -> None:
    """Scales decide whole tensors, so a bad one is found before anything is written."""
    with MappedSource(source) as mapped:
        for name in sorted(frozenset().union(*(plan.scalars for plan in plans))):
            mapped.scalar(name)


def _check_space(place: Workplace, plans: tuple[RankPlan, ...], earlier: Mapping[str, FinishedRank]) -> None:
    needed = sum(plan.total_bytes for plan in plans if plan.file_name not in earlier)
    free = shutil.disk_usage(place.root).free
    if free < needed:
        raise EnvironmentMissing(
            f"{place.output} needs {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free there.",
            remedy="Free space, or name a folder on another file system.",
        )


def _write_ranks(place: Workplace, earlier: Mapping[str, FinishedRank], job: Job) -> dict[str, FinishedRank]:
    meter = _Meter(job.total_bytes, sum(rank.bytes for rank in earlier.values()), job.report)
    finished = dict(earlier)
    workers = job.options.workers or len(os.sched_getaffinity(0))
    sharding = job.resolved.sharding
    with MappedSource(job.source) as mapped, ThreadPoolExecutor(workers, thread_name_prefix="rank") as pool:
        work = Work(mapped, sharding.split.facts, sharding.clamp, meter.add)
        waiting = {
            pool.submit(_make_rank, place, plan, work, sharding.split.tensor_parallel): plan.file_name
            for plan in job.plans
            if plan.file_name not in earlier
        }
        try:
            _await(waiting, finished, meter)
        except BaseException:
            work.stop.set()
            for future in waiting:
                future.cancel()
            raise
    return finished


def _await(waiting: dict[Future[FinishedRank], str], finished: dict[str, FinishedRank], meter: _Meter) -> None:
    pending = set(waiting)
    while pending:
        done, pending = wait(pending, timeout=REPORT_EVERY_S, return_when=FIRST_EXCEPTION)
        for future in done:
            try:
                finished[waiting[future]] = future.result()
            except OSError as error:
                raise _explain(error, meter) from error
        meter.report()


def _explain(error: OSError, meter: _Meter) -> StepFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        left = (meter.total_bytes - meter.done_bytes) / 1e9
        return StepFailed(
            f"The disk is full: {left:.2f} GB of {meter.total_bytes / 1e9:.2f} GB were still to be written.",
            remedy="Free space and run the same command again; ranks that are finished are kept.",
            step="convert",
        )
    return StepFailed(
        f"Writing the checkpoint failed: {error.strerror or error}.",
        remedy="Correct this and run the same command again; ranks that are finished are kept.",
        step="convert",
    )


def _make_rank(place: Workplace, plan: RankPlan, work: Work, tensor_parallel: int) -> FinishedRank:
    path = place.root / plan.file_name
    # Ranks of a stage share tensors; one of them looking for values that are no numbers is enough.
    warnings = write_rank(path, plan, work, report_shared=plan.rank % tensor_parallel == 0)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # The disk works while the processor hashes; the bytes come from the page cache.
        with ThreadPoolExecutor(1) as flusher:
            flushed = flusher.submit(os.fsync, descriptor)
            sha256 = digest_sha256(path)
            flushed.result()
    finally:
        os.close(descriptor)
    rank = FinishedRank(sha256, plan.total_bytes, warnings)
    place.mark(plan.file_name, rank)
    return rank


class _Meter:
    """Counts bytes from all workers and reports from the waiting thread."""

    def __init__(self, total_bytes: int, done_bytes: int, report: Callable[[Progress], None]) -> None:
        self.total_bytes = total_bytes
        self.done_bytes = done_bytes
        self._began_at = done_bytes
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._report = report

    def add(self, count: int) -> None:
        with self._lock:
            self.done_bytes += count

    def report(self) -> None:
        done = self.done_bytes
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (done - self._began_at) / seconds
        remaining = (self.total_bytes - done) / rate if rate > 0 else None
        self._report(Progress(done, self.total_bytes, rate, remaining))


def _collect_warnings(resolved: Resolved, finished: Mapping[str, FinishedRank]) -> tuple[str, ...]:
    return (*resolved.warnings, *dict.fromkeys(text for rank in finished.values() for text in rank.warnings))


def _render_manifest(
    job: Job, params: dict[str, Any], inputs: dict[str, str], warnings: tuple[str, ...], started: float
) -> dict[str, Any]:
    return {
        "step": "convert",
        "kind": "convert",
        "source": str(job.source.folder),
        "params": params,
        "inputs": inputs,
        "tools": {"trtspec": __version__},
        "dialect": job.resolved.dialect._asdict(),
        "warnings": list(warnings),
        "duration_s": round(time.monotonic() - started, 3),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write_small_files(
    place: Workplace, job: Job, finished: Mapping[str, FinishedRank], manifest: dict[str, Any]
) -> None:
    """config.json, then the manifest with the digests of everything: a folder without it is not finished."""
    config = place.root / CONFIG_NAME
    _write_text(config, _render_config(job))
    files = {CONFIG_NAME: {"bytes": config.stat().st_size, "sha256": digest_sha256(config)}}
    for plan in job.plans:
        rank = finished[plan.file_name]
        files[plan.file_name] = {"bytes": rank.bytes, "sha256": rank.sha256}
    _write_text(place.root / MANIFEST_FILE, {**manifest, "files": files})


def _render_config(job: Job) -> dict[str, Any]:
    files = job.source.files
    return render_config(job.resolved.sharding, files.config, files.quantization.get("quantization"))


def _write_text(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")
