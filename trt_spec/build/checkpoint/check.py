"""`trtspec check CHECKPOINT`: whether a TensorRT-LLM checkpoint, ours or NVIDIA's, is whole and fits config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.build.checkpoint.config import ALGORITHMS
from trt_spec.build.checkpoint.convert import CONFIG_NAME
from trt_spec.build.checkpoint.families import find_family
from trt_spec.build.source.shards import load_json_object
from trt_spec.build.store import MANIFEST_FILE
from trt_spec.errors import SpecError, VerifyFailed
from trt_spec.plan.facts import FAMILIES, ModelFacts
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

    Raises SpecError for a folder that is no TensorRT-LLM checkpoint of a known kind, VerifyFailed listing the faults.
    """
    if not (folder / CONFIG_NAME).is_file():
        raise SpecError(
            f"{folder} has no {CONFIG_NAME}, so it is no checkpoint.", remedy="Name the folder that has it."
        )
    split = _load_split(folder / CONFIG_NAME)
    ranks = split.tensor_parallel * split.pipeline_parallel
    faults, tensors = [], 0
    for rank in range(ranks):
        found, count = _check_rank(folder, split, rank)
        faults += found
        tensors += count
    expected = {f"rank{rank}.safetensors" for rank in range(ranks)}
    extra = sorted({path.name for path in folder.glob("*.safetensors")} - expected)
    faults += [f"{name} belongs to no rank of {ranks}" for name in extra]
    manifest = load_json_object(folder / MANIFEST_FILE) if (folder / MANIFEST_FILE).is_file() else None
    if manifest is not None and not faults:
        faults += _check_digests(folder, manifest, expected, report)
    if faults:
        more = f" and {len(faults) - MAX_LISTED} more" if len(faults) > MAX_LISTED else ""
        raise VerifyFailed(f"{folder} is faulty: {'; '.join(faults[:MAX_LISTED])}{more}.", remedy=_REMEDY)
    total = sum((folder / name).stat().st_size for name in expected)
    return CheckedCheckpoint(folder, ranks, tensors, total, manifest is not None)


def _load_split(path: Path) -> Split:
    """The split that a TensorRT-LLM config.json describes."""
    config = load_json_object(path)
    try:
        mapping, quantization = config["mapping"], config["quantization"]
        facts = _load_facts(config)
        names = {algorithm: name for name, algorithm in ALGORITHMS.items()}
        if quantization["quant_algo"] not in names:
            raise SpecError(
                f"{path}: quantisation {quantization['quant_algo']} cannot be checked.",
                remedy=f"Known: none, {', '.join(str(name) for name in names if name)}.",
            )
        return Split(
            facts,
            names[quantization["quant_algo"]],  # type: ignore[arg-type]
            "fp8" if quantization["kv_cache_quant_algo"] == "FP8" else "auto",
            config["dtype"],
            mapping["tp_size"],
            mapping["pp_size"],
            "1.3.0rc3" if "attn_tp_size" in mapping else "0.17",
            config["embedding_sharding_dim"] if config["use_parallel_embedding"] else None,
            bool(quantization.get("use_meta_recipe")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(
            f"{path} is not that of a TensorRT-LLM checkpoint ({type(error).__name__}: {error}).",
            remedy="Name the folder that `trtspec convert` wrote.",
        ) from error


def _load_facts(config: Mapping[str, Any]) -> ModelFacts:
    find_family(config["architecture"])
    return ModelFacts(
        architecture=config["architecture"],
        family=FAMILIES[config["architecture"]],
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_size"],
        max_position_embeddings=config["max_position_embeddings"],
        rms_norm_eps=config["norm_epsilon"],
        rope_theta=config["rotary_base"],
        rope_scaling=None,  # decides values, not shapes
        tied_embeddings=config["tie_word_embeddings"],
        qkv_bias=config["attn_bias"],
        output_bias=config["attn_bias"] and config["architecture"] != "Qwen2ForCausalLM",
        mlp_bias=config["mlp_bias"],
        dtype=config["dtype"],
        eos_ids=(),
    )


def _check_rank(folder: Path, split: Split, rank: int) -> tuple[list[str], int]:
    """What is wrong with a rank file, and how many tensors it has."""
    name = f"rank{rank}.safetensors"
    if not (folder / name).is_file():
        return [f"{name} is missing"], 0
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


def _check_digests(
    folder: Path, manifest: Mapping[str, Any], expected: set[str], report: Callable[[str, float | None], None]
) -> list[str]:
    files = manifest.get("files")
    if not isinstance(files, Mapping) or not expected | {CONFIG_NAME} <= files.keys():
        return [f"{MANIFEST_FILE} does not list {CONFIG_NAME} and every rank"]
    faults = []
    for number, (name, entry) in enumerate(sorted(files.items())):
        report(f"reading {name}", number / len(files))
        if not (folder / name).is_file():
            faults.append(f"{name} is missing")
        elif digest_sha256(folder / name) != entry.get("sha256"):
            faults.append(f"{name} is not the file that was written (its sha256 differs)")
    return faults
