"""`trtspec check CHECKPOINT`: whether a TensorRT-LLM checkpoint, ours or NVIDIA's, is whole and fits config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trt_spec.build.checkpoint.convert import CONFIG_NAME
from trt_spec.build.checkpoint.described import load_split
from trt_spec.build.source.shards import load_json_object
from trt_spec.build.store import MANIFEST_FILE
from trt_spec.errors import SpecError, VerifyFailed
from trt_spec.plan.tensors import Split, layer_kinds, layer_rows, stage_rows
from trt_spec.util.files import digest_sha256
from trt_spec.util.safetensors_header import load_header

MAX_LISTED = 10
_REMEDY = "Convert the model again."


@dataclass(frozen=True)
class CheckedCheckpoint:
    """A checkpoint without faults; ``has_digests`` tells whether its contents were compared with recorded ones."""

    folder: Path
    ranks: int
    tensors: int
    total_bytes: int
    has_digests: bool


def check_checkpoint(folder: Path, report: Callable[[str, float | None], None]) -> CheckedCheckpoint:
    """Check names, shapes and types of every rank's tensors, and all bytes where a manifest has their digests.

    Raises SpecError for a folder that is no TensorRT-LLM checkpoint, UnreadCheckpoint for one of a kind that is not
    known, VerifyFailed listing the faults.
    """
    if not any(path.name == CONFIG_NAME for path in folder.iterdir()):
        raise SpecError(
            f"{folder} has no {CONFIG_NAME}, so it is no checkpoint.", remedy="Name the folder that has it."
        )
    split = load_split(folder / CONFIG_NAME)
    ranks = split.tensor_parallel * split.pipeline_parallel
    faults, tensors = [], 0
    for rank in range(ranks):
        found, count = _check_rank(folder, split, rank)
        faults += found
        tensors += count
    expected = {f"rank{rank}.safetensors" for rank in range(ranks)}
    extra = sorted({path.name for path in folder.glob("*.safetensors")} - expected)
    faults += [f"{name} belongs to no rank of {ranks}" for name in extra]
    has_digests = (folder / MANIFEST_FILE).is_file()
    if has_digests and not faults:
        faults += _check_digests(folder, expected, report)
    if faults:
        more = f" and {len(faults) - MAX_LISTED} more" if len(faults) > MAX_LISTED else ""
        raise VerifyFailed(f"{folder} is faulty: {'; '.join(faults[:MAX_LISTED])}{more}.", remedy=_REMEDY)
    total = sum((folder / name).stat().st_size for name in expected)
    return CheckedCheckpoint(folder, ranks, tensors, total, has_digests)


def _check_rank(folder: Path, split: Split, rank: int) -> tuple[list[str], int]:
    """What is wrong with a rank file, and how many tensors it has."""
    name = f"rank{rank}.safetensors"
    if not (folder / name).is_file():
        return [f"{name} is {'no regular file' if (folder / name).exists() else 'missing'}"], 0
    try:
        header = load_header(folder / name)
    except SpecError as error:
        return [error.found.removesuffix(".")], 0
    stage = rank // split.tensor_parallel
    rows = {row.name: row for row in stage_rows(split, stage)}
    for local, kind in enumerate(layer_kinds(split, stage)):
        rows.update({row.name.format(i=local): row for row in layer_rows(split, kind)})
    faults = [f"{name} lacks tensor {missing!r}" for missing in sorted(rows.keys() - header.keys())]
    faults += [f"{name} has the unknown tensor {extra!r}" for extra in sorted(header.keys() - rows.keys())]
    for tensor in sorted(rows.keys() & header.keys()):
        found, row = header[tensor], rows[tensor]
        if (found.dtype, found.shape) != (row.dtype, row.shape):
            faults.append(
                f"{name} has {tensor!r} as {found.dtype} {list(found.shape)}, expected {row.dtype} {list(row.shape)}"
            )
    return faults, len(header)


def _check_digests(folder: Path, expected: set[str], report: Callable[[str, float | None], None]) -> list[str]:
    try:
        files = load_json_object(folder / MANIFEST_FILE).get("files")
    except SpecError as error:
        return [error.found.removesuffix(".")]
    if not isinstance(files, Mapping) or not expected | {CONFIG_NAME} <= files.keys():
        return [f"{MANIFEST_FILE} does not list {CONFIG_NAME} and every rank"]
    faults = []
    for number, (name, entry) in enumerate(sorted(files.items())):
        report(f"reading {name}", number / len(files))
        if Path(name).name != name or "\0" in name or not isinstance(entry, Mapping):
            faults.append(f"{MANIFEST_FILE} lists {name!r}, expected a file of the folder with its digest")
        elif not (folder / name).is_file():
            faults.append(f"{name} is missing")
        elif digest_sha256(folder / name) != entry.get("sha256"):
            faults.append(f"{name} is not the file that was written (its sha256 differs)")
    return faults
