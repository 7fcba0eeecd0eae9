"""The shards of a Hugging Face checkpoint: which files hold its tensors, by their headers alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.util.safetensors_header import TensorSpan, load_header

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = "config.json"

_REMEDY = "Download or convert the checkpoint again."


def load_tensor_spans(folder: Path) -> dict[str, tuple[Path, TensorSpan]]:
    """Return every tensor of a checkpoint of one file or of shards with an index, with the shard that holds it.

    Raises SpecError naming the file, and the tensor where there is one, for anything missing, cut or contradictory.
    """
    if (folder / SINGLE_NAME).exists():
        return merge_shards({folder / SINGLE_NAME: load_header(folder / SINGLE_NAME)})
    index = folder / INDEX_NAME
    if not index.exists():
        raise SpecError(f"{folder} has neither {SINGLE_NAME} nor {INDEX_NAME}.", remedy=_REMEDY)
    weight_map = load_weight_map(index)
    spans = merge_shards({folder / name: _load_shard(folder / name) for name in sorted(set(weight_map.values()))})
    check_index(index, weight_map, spans)
    return spans


def merge_shards(headers: Mapping[Path, Mapping[str, TensorSpan]]) -> dict[str, tuple[Path, TensorSpan]]:
    """Return the tensors of all shards by name. Raises SpecError naming a tensor that two of them hold."""
    spans: dict[str, tuple[Path, TensorSpan]] = {}
    for path, header in headers.items():
        for name, span in header.items():
            if name in spans:
                raise SpecError(f"Tensor {name!r} is in both {spans[name][0]} and {path}.", remedy=_REMEDY)
            spans[name] = (path, span)
    return spans


def _load_shard(path: Path) -> dict[str, TensorSpan]:
    if not path.is_file():
        raise SpecError(f"The shard {path} is missing, though the index names it.", remedy=_REMEDY)
    return load_header(path)


def load_json_object(path: Path) -> dict[str, Any]:
    """Return a JSON file that holds an object. Raises SpecError naming the file."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise SpecError(f"Cannot read {path}: {error.strerror}.", remedy=_REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not JSON ({error}).", remedy=_REMEDY) from error
    if not isinstance(document, dict):
        raise SpecError(f"{path} holds a JSON {type(document).__name__}, expected an object.", remedy=_REMEDY)
    return document


def load_weight_map(path: Path) -> dict[str, str]:
    """Return the shard of every tensor that an index names. Raises SpecError naming the index."""
    weight_map = load_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SpecError(f"{path} has no weight_map that names tensors and their shards.", remedy=_REMEDY)
    for name, shard in weight_map.items():
        # A shard is a file beside its index; anything else would read elsewhere on the disk.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise SpecError(f"{path} puts tensor {name!r} into {shard!r}, expected a file name.", remedy=_REMEDY)
    return weight_map


def check_index(path: Path, weight_map: Mapping[str, str], spans: Mapping[str, tuple[Path, TensorSpan]]) -> None:
    """Raise SpecError naming the first tensor on which an index and the shards disagree."""
    for name, shard in weight_map.items():
        if name not in spans:
            raise SpecError(f"{path} puts tensor {name!r} into {shard}, but no shard holds it.", remedy=_REMEDY)
        if spans[name][0].name != shard:
            raise SpecError(
                f"{path} puts tensor {name!r} into {shard}, but it is in {spans[name][0].name}.", remedy=_REMEDY
            )
    unlisted = sorted(spans.keys() - weight_map.keys())
    if unlisted:
        raise SpecError(
            f"{spans[unlisted[0]][0]} holds tensor {unlisted[0]!r}, which {path.name} lacks.", remedy=_REMEDY
        )
