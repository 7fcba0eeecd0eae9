"""The one judge of engine folders: config.json, a file for every rank, and what the build recorded of them.

Findings count their files from the engine's folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from trt_spec.deploy.check.engine_config import is_tensorrt, rank_count, section, whole
from trt_spec.deploy.check.engine_settings import judge_settings
from trt_spec.deploy.check.finding import CheckFinding, CheckSeverity
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.deploy.check.reading import FaultKind, list_folder, look_at, read_json_object, read_text, shown, size_of
from trt_spec.deploy.check.view import MeantVersion
from trt_spec.plan.engine_record import BUILD_AGAIN, compare_sizes
from trt_spec.plan.toolchain.containers import containers_with
from trt_spec.util.files import digest_sha256

RECORD_FILE = "manifest.json"
COPY_AGAIN = "Copy the whole engine folder, or build it again."
Progress = Callable[[str, float | None], None]
_MAX_RANKS = 4096
_MAX_TOLD = 4  # rank files, one finding each
_POINTER = "version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES = 1024
_SHOWN_DIGITS = 12
_PLAN_WHY = "an engine loads with the TensorRT that wrote it only"


@dataclass(frozen=True)
class EngineRecord:
    """What `trtspec build` recorded of an engine: sizes in bytes and digests by file, the GPUs it was built on."""

    sizes: Mapping[str, int]
    digests: Mapping[str, str]
    compute_capabilities: tuple[str, ...]


def load_engine_record(folder: Path) -> EngineRecord | str:
    """Return the record of an engine, or why there is none that can be used: missing, damaged or of somebody else."""
    document, fault = read_json_object(folder / RECORD_FILE)
    files = section(document, "files")
    if document is None or not files:
        return f"{RECORD_FILE} {fault or 'lists no files'}"
    sizes = {name: whole(section(files, name), "bytes") for name in files}
    known = {name: size for name, size in sizes.items() if size is not None and _is_inside(name)}
    if len(known) < len(sizes):
        return f"{RECORD_FILE} lists files without their sizes or outside the folder"
    digests = {name: digest for name in known if isinstance(digest := section(files, name).get("sha256"), str)}
    gpus = document.get("gpus")
    built_on = [section({"": gpu}, "").get("compute_capability") for gpu in gpus] if isinstance(gpus, list) else []
    return EngineRecord(known, digests, tuple(sm for sm in built_on if isinstance(sm, str)))


def judge_engine(
    folder: Path,
    config: Mapping[str, Any],
    meant: MeantVersion | None,
    compute_capability: str | None,
    report: Progress | None = None,
) -> Iterator[CheckFinding]:
    """Judge version, architecture and files of an engine whose ``config`` is that of its config.json.

    With ``report``, which hears of it, every recorded file is read to its last byte; without, config.json alone.
    """
    yield from _judge_version(config, meant)
    if is_tensorrt(config):
        yield from judge_settings(config)
    record = load_engine_record(folder) if _is_there(folder / RECORD_FILE) else None
    if isinstance(record, str):
        remedy = "Run `trtspec build SPEC` again if the engine is ours."
        yield _found("engine-manifest", "warning", RECORD_FILE, record, "its files cannot be compared", remedy)
        record = None
    yield from _judge_ranks(folder, config, frozenset(record.sizes if record else ()))
    if record is not None:
        yield from _judge_gpus(record, compute_capability)
        yield from _judge_record(folder, record, report)


def _judge_version(config: Mapping[str, Any], meant: MeantVersion | None) -> Iterator[CheckFinding]:
    version = config.get("version")
    if not isinstance(version, str):
        yield _found(
            "engine-version",
            "error",
            CONFIG_FILE,
            f"{CONFIG_FILE} does not say which TensorRT-LLM built the engine",
            _PLAN_WHY,
            "Build the engine again with TensorRT-LLM 0.17 or later.",
        )
    elif is_tensorrt(config) and meant is not None and meant.tensorrt_llm != version:
        rows = containers_with(version)
        use = f"use the container {rows[0].container}" if rows else "use the container that it was built in"
        yield _found(
            "engine-version",
            "error",
            CONFIG_FILE,
            f"the engine was built with TensorRT-LLM {version}, it is meant for {meant.tensorrt_llm}, {meant.how}",
            _PLAN_WHY,
            f"Build the engine with {meant.tensorrt_llm}, or {use}.",
        )


def _judge_ranks(folder: Path, config: Mapping[str, Any], recorded: frozenset[str]) -> Iterator[CheckFinding]:
    """Rank files against the mapping; those that are ``recorded`` are compared with their record instead."""
    ranks = rank_count(section(config, "pretrained_config"))
    if not is_tensorrt(config):
        return
    if ranks is None or ranks > _MAX_RANKS:
        yield _found(
            "engine-ranks",
            "error",
            CONFIG_FILE,
            "pretrained_config.mapping does not say tp_size and pp_size",
            "the number of rank files follows from them",
            "Build the engine again.",
        )
        return
    sizes = {shown(entry.name): size_of(folder / entry.name) for entry in list_folder(folder)[0]}
    wanted = {f"rank{rank}.engine" for rank in range(ranks)}
    found = {name for name in sizes if name.startswith("rank") and name.endswith(".engine")}
    lost = dict.fromkeys(wanted - recorded - sizes.keys(), "is missing")
    for name in (wanted - recorded) & sizes.keys():
        if not sizes[name]:
            lost[name] = "is empty or unreadable"
        elif (sizes[name] or 0) <= _MAX_POINTER_BYTES and read_text(folder / name, _MAX_POINTER_BYTES)[0].startswith(
            _POINTER
        ):
            lost[name] = "is a Git LFS pointer, not the file that it stands for"
    names = sorted(lost, key=lambda name: (len(name), name))
    for name in names[:_MAX_TOLD]:
        what = f"{name} {lost[name]}, the mapping has {ranks} ranks{_more(names, name)}"
        yield _found("engine-ranks", "error", name, what, "every rank loads a file of its own", COPY_AGAIN)
    names = sorted(found - wanted, key=lambda name: (len(name), name))
    for name in names[:_MAX_TOLD]:
        what = f"{name} belongs to none of the {ranks} ranks of the mapping{_more(names, name)}"
        why = "files of two builds are mixed, or the mapping was edited"
        yield _found("engine-ranks", "error", name, what, why, "Build the engine into an empty folder.")


def _more(names: list[str], name: str) -> str:
    """What the last one that is told says of the rest."""
    left = len(names) - _MAX_TOLD
    return f"; so it is with {left} more" if left > 0 and name == names[_MAX_TOLD - 1] else ""


def _judge_gpus(record: EngineRecord, compute_capability: str | None) -> Iterator[CheckFinding]:
    """The GPUs that the engine was built on against those it is meant for."""
    built = next((sm for sm in record.compute_capabilities if _digits(sm) != _digits(compute_capability or sm)), None)
    if built is not None and compute_capability is not None:
        yield _found(
            "engine-gpu",
            "error",
            RECORD_FILE,
            f"the engine is sm{_digits(built)}, the GPUs are sm{_digits(compute_capability)}",
            "an engine runs on the architecture it was built for only",
            "Build the engine on a GPU of the serving kind.",
        )


def _judge_record(folder: Path, record: EngineRecord, report: Progress | None) -> Iterator[CheckFinding]:
    sizes = {name: size for name in record.sizes if (size := size_of(folder / name)) is not None}
    faults = {fault.name: fault for fault in compare_sizes(record.sizes, sizes)}
    for name, fault in faults.items():
        yield _found("engine-file", "error", shown(name), fault.what, "a part of an engine does not load", BUILD_AGAIN)
    read = record.digests if report is not None else record.digests.keys() & {CONFIG_FILE}
    for number, name in enumerate(sorted(read - faults.keys())):
        if report is not None:
            report(f"reading {shown(name)}", number / len(read))
        try:
            digest = digest_sha256(folder / name)
        except OSError as error:
            what = f"{shown(name)} cannot be read ({error.strerror})"
            why = "it cannot be compared or loaded"
            yield _found("engine-file", "error", shown(name), what, why, f"chmod a+r {shown(name)}")
            continue
        if digest != record.digests[name]:
            yield _found(
                "engine-edited",
                "error",
                shown(name),
                f"hash mismatch of {shown(name)}: sha256 {digest[:_SHOWN_DIGITS]}, the build recorded "
                f"{record.digests[name][:_SHOWN_DIGITS]}",
                "it was changed after the build; an engine keeps the sizes it was built with, whatever its config says",
                "Restore the file, or build again with other limits.",
            )


def _is_there(path: Path) -> bool:
    fault = look_at(path)[1]
    return fault is None or fault.kind is not FaultKind.MISSING


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _digits(compute_capability: str) -> str:
    return re.sub(r"[^0-9]", "", compute_capability)


def _found(code: str, severity: CheckSeverity, file: str, what: str, why: str, remedy: str) -> CheckFinding:
    return CheckFinding(code, severity, file, None, what, why, remedy)
