"""What the config.json of a TensorRT-LLM checkpoint says about its tensors, whoever wrote it: no value is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trt_spec.build.checkpoint.config import ALGORITHMS
from trt_spec.build.checkpoint.families import ARCHITECTURES
from trt_spec.build.source.shards import load_json_object
from trt_spec.errors import SpecError, VerifyFailed
from trt_spec.plan.facts import FAMILIES, MAX_SIZE, ModelFacts
from trt_spec.plan.medusa_heads import MAX_LAYERS as MAX_HEAD_LAYERS
from trt_spec.plan.medusa_heads import MEDUSA_ARCHITECTURE, MedusaHeads
from trt_spec.plan.tensors import STORED, Split
from trt_spec.spec.medusa import MAX_DEPTH

READ = (*ARCHITECTURES, MEDUSA_ARCHITECTURE)
MAX_RANKS = 4096
MAX_LAYERS = 10_000  # the deepest published models have a few hundred
_SHOWN_CHARACTERS = 60
_REMEDY = "Restore config.json, or convert the model again."


class UnreadCheckpoint(SpecError):
    """A TensorRT-LLM checkpoint whose tensors this version of trtspec does not know, so that nothing is said of it."""


def load_split(path: Path) -> Split:
    """Return model, precision and ranks that the config.json of a checkpoint describes.

    Raises SpecError for one that is not TensorRT-LLM's, UnreadCheckpoint for an architecture or quantisation without
    rows, VerifyFailed naming a value that no checkpoint can have.
    """
    config = _load(path)
    _check_kind(path, config)
    values = _Values(path, config)
    mapping, quantization = values.section("mapping"), values.section("quantization")
    tensor_parallel, pipeline_parallel = mapping.whole("tp_size", MAX_RANKS), mapping.whole("pp_size", MAX_RANKS)
    layers = values.whole("num_hidden_layers", MAX_LAYERS)
    if tensor_parallel * pipeline_parallel > MAX_RANKS or pipeline_parallel > layers:
        raise VerifyFailed(
            f"{path}: mapping has tp_size {tensor_parallel} and pp_size {pipeline_parallel}, expected at most "
            f"{MAX_RANKS} ranks and no more stages than the {layers} layers.",
            remedy=_REMEDY,
        )
    contexts = mapping.whole("cp_size", MAX_RANKS) if "cp_size" in mapping.raw else 1
    stated, wanted = mapping.raw.get("world_size"), tensor_parallel * pipeline_parallel * contexts
    if "world_size" in mapping.raw and stated != wanted:
        raise VerifyFailed(
            f"{path}: mapping.world_size is {_shown(stated)}, tp_size, pp_size and cp_size make {wanted}.",
            remedy=_REMEDY,
        )
    names: dict[object, str] = {algorithm: name for name, algorithm in ALGORITHMS.items()}
    is_medusa = config["architecture"] == MEDUSA_ARCHITECTURE
    return Split(
        _read_facts(values, layers),
        names[quantization.raw.get("quant_algo")],  # type: ignore[arg-type]
        "fp8" if quantization.raw.get("kv_cache_quant_algo") == "FP8" else "auto",
        values.choice("dtype", tuple(STORED)),
        tensor_parallel,
        pipeline_parallel,
        "1.3.0rc3" if "attn_tp_size" in mapping.raw else "0.17",
        values.axis("embedding_sharding_dim") if values.flag("use_parallel_embedding") else None,
        bool(quantization.raw.get("use_meta_recipe")),
        _read_heads(values) if is_medusa else None,
    )


def _read_heads(values: _Values) -> MedusaHeads:
    return MedusaHeads(values.whole("num_medusa_heads", MAX_DEPTH), values.whole("num_medusa_layers", MAX_HEAD_LAYERS))


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise VerifyFailed(f"{path} is no regular file.", remedy=_REMEDY)
    try:
        return load_json_object(path)
    except SpecError as error:
        raise VerifyFailed(error.found, remedy=_REMEDY) from error


def _check_kind(path: Path, config: Mapping[str, Any]) -> None:
    if "architecture" not in config and ("architectures" in config or "model_type" in config):
        raise SpecError(
            f"{path.parent} is a Hugging Face checkpoint, not one of TensorRT-LLM.",
            remedy="Convert it with `trtspec convert`, and check the folder that it writes.",
        )
    if "architecture" not in config and "mapping" not in config:
        raise SpecError(
            f"{path} is not that of a TensorRT-LLM checkpoint: it names no architecture and no mapping.",
            remedy="Name the folder that `trtspec convert` wrote.",
        )
    architecture = config.get("architecture")
    if not isinstance(architecture, str):
        raise VerifyFailed(f"{path}: architecture is {_shown(architecture)}, expected a name.", remedy=_REMEDY)
    if architecture not in READ:
        raise UnreadCheckpoint(
            f"checkpoints of {architecture[:60]!r} are not read in this version of trtspec.",
            remedy=f"Nothing is wrong with that by itself; read are {', '.join(READ)}.",
        )
    if architecture == MEDUSA_ARCHITECTURE and config.get("model_type") != "llama":
        raise UnreadCheckpoint(
            f"Medusa checkpoints of model_type {_shown(config.get('model_type'))} are not read in this version of "
            "trtspec.",
            remedy='Nothing is wrong with that by itself; read are those of "llama".',
        )
    quantization = config.get("quantization")
    algorithm = quantization.get("quant_algo") if isinstance(quantization, Mapping) else None
    if algorithm not in ALGORITHMS.values():
        raise UnreadCheckpoint(
            f"checkpoints with quant_algo {_shown(algorithm)} are not read in this version of trtspec.",
            remedy=f"Nothing is wrong with that by itself; read are {', '.join(map(_shown, ALGORITHMS.values()))}.",
        )
    if architecture == MEDUSA_ARCHITECTURE and algorithm is not None:
        raise UnreadCheckpoint(
            "quantised Medusa checkpoints are not read in this version of trtspec: none is recorded.",
            remedy="Nothing is wrong with that by itself; read are unquantised ones.",
        )


def _read_facts(values: _Values, layers: int) -> ModelFacts:
    architecture = values.raw["architecture"]
    is_medusa = architecture == MEDUSA_ARCHITECTURE
    if is_medusa:
        architecture = "LlamaForCausalLM"
    heads, hidden = values.whole("num_attention_heads"), values.whole("hidden_size")
    # NVIDIA's Medusa script says neither biases nor, where it follows, the head size.
    attention_bias = not is_medusa and values.flag("attn_bias")
    follows = is_medusa and "head_size" not in values.raw
    return ModelFacts(
        architecture=architecture,
        family=FAMILIES[architecture],
        vocab_size=values.whole("vocab_size"),
        hidden_size=hidden,
        intermediate_size=values.whole("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=values.whole("num_key_value_heads"),
        head_dim=hidden // heads if follows else values.whole("head_size"),
        max_position_embeddings=values.whole("max_position_embeddings"),
        # These decide values, not shapes.
        rms_norm_eps=0.0,
        rope_theta=0.0,
        rope_scaling=None,
        tied_embeddings=False,
        qkv_bias=attention_bias,
        output_bias=attention_bias and architecture != "Qwen2ForCausalLM",
        mlp_bias=not is_medusa and values.flag("mlp_bias"),
        dtype=values.choice("dtype", tuple(STORED)),
        eos_ids=(),
    )


class _Values:
    """A section of config.json whose values are checked one by one; each method raises VerifyFailed."""

    def __init__(self, path: Path, raw: Mapping[str, Any], prefix: str = "") -> None:
        self.raw = raw
        self._path = path
        self._prefix = prefix

    def section(self, key: str) -> _Values:
        found = self.raw.get(key)
        if not isinstance(found, Mapping):
            raise self._fault(key, "an object")
        return _Values(self._path, found, f"{self._prefix}{key}.")

    def whole(self, key: str, most: int = MAX_SIZE) -> int:
        found = self.raw.get(key)
        if type(found) is not int or not 1 <= found <= most:
            raise self._fault(key, f"a whole number from 1 to {most}")
        return found

    def axis(self, key: str) -> Any:
        return self._one_of(key, (0, 1))

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        return str(self._one_of(key, allowed))

    def flag(self, key: str) -> bool:
        return bool(self._one_of(key, (True, False)))

    def _one_of(self, key: str, allowed: tuple[object, ...]) -> object:
        found = self.raw.get(key)
        if not any(type(found) is type(row) and found == row for row in allowed):
            raise self._fault(key, " or ".join(map(_shown, allowed)))
        return found

    def _fault(self, key: str, expected: str) -> VerifyFailed:
        found = _shown(self.raw[key]) if key in self.raw else "missing"
        return VerifyFailed(f"{self._path}: {self._prefix}{key} is {found}, expected {expected}.", remedy=_REMEDY)


def _shown(value: object) -> str:
    """A value as config.json spells it."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits
        return "a number without end"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
