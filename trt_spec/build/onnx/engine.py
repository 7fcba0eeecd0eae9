"""An engine folder of the onnx backend: graph, weights, and a config.json in the manner of TensorRT-LLM's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trt_spec.build.onnx.graph import GraphBuilder
from trt_spec.build.onnx.weights import WeightFile
from trt_spec.build.source.checkpoint import Checkpoint
from trt_spec.build.source.shards import load_json_object
from trt_spec.build.source.small_files import OPTIONAL_NAMES
from trt_spec.build.source.tokenizer_files import write_tokenizer_files
from trt_spec.errors import SpecError
from trt_spec.plan.engine_record import ONNX_VERSION_PREFIX
from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.model_files import LAYER_PREFIX, ModelFiles, split_layer
from trt_spec.plan.self_draft import check_layers
from trt_spec.plan.source_quantization import UNQUANTISED, UNQUANTISED_REMEDY, resolve_source_quantization
from trt_spec.plan.steps import BLOCK_SIZES
from trt_spec.serve.local_backend.engine_folder import ENGINE_FORMAT

GRAPH_FILE = "model.onnx"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
IGNORED_TENSORS = ("rotary_emb.inv_freq",)
"""Buffers that old checkpoints carry along and that config.json determines."""


def write_engine(source: Path, params: Mapping[str, Any], folder: Path, on_progress: Callable[[float], None]) -> None:
    """Builds the engine of the checkpoint in ``source`` into the existing empty ``folder``.

    ``params`` are those of the plan's step; with ``layers`` among them the engine has only these. Reports progress as a
    fraction. Raises SpecError for a checkpoint with missing, unknown or misshapen tensors, layers that it has not, or
    limits beyond what the model was trained for.
    """
    with Checkpoint.open(source) as checkpoint, WeightFile(folder) as weights:
        whole = resolve_facts(checkpoint.config, source=str(source / "config.json"))
        layers = tuple(params.get("layers", range(whole.layers)))
        check_layers(layers, whole.layers, str(source))
        facts = replace(whole, layers=len(layers))
        _check_unquantised(checkpoint.config, source)
        _check_length(facts, params["max_seq_len"], source)
        loader = TensorLoader(checkpoint, whole, source, layers)
        builder = GraphBuilder(
            facts, loader, weights, weight_bits=params["weight_bits"], max_seq_len=params["max_seq_len"]
        )
        model = builder.build(lambda layers: on_progress(layers / (facts.layers + 1)))
        loader.check_all_used()
    (folder / GRAPH_FILE).write_bytes(model.SerializeToString())
    onnx.checker.check_model(folder / GRAPH_FILE)
    config = {
        "version": f"{ONNX_VERSION_PREFIX}{version('onnx')}",
        "pretrained_config": _pretrained_config(facts, params["weight_bits"], is_exact=builder.is_exact),
        "build_config": _build_config(params),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_tokenizer_files(source, checkpoint.config, folder)
    on_progress(1.0)


class TensorLoader:
    """Loads tensors by their Hugging Face names, checks their shapes, and accounts for every one of them.

    ``layers`` are those of the checkpoint that the model keeps; it counts the kept ones from 0, and asks for them so.
    Messages name tensors as the checkpoint does.
    """

    def __init__(self, checkpoint: Checkpoint, facts: ModelFacts, source: Path, layers: tuple[int, ...]) -> None:
        self._checkpoint = checkpoint
        self._shapes = expected_shapes(facts)
        self._layers = layers
        self._source = source
        self._used: set[str] = set()
        missing = sorted(self._shapes.keys() - checkpoint.tensors.keys())
        if missing:
            raise SpecError(
                f"{source} lacks {len(missing)} tensors that config.json promises, the first is {missing[0]}.",
                remedy="Download the checkpoint again, all shards of it.",
            )

    def __call__(self, name: str) -> NDArray[np.float32]:
        name = self._name_in_checkpoint(name)
        shape = self._checkpoint.tensors[name].shape
        if tuple(shape) != self._shapes[name]:
            promised = list(self._shapes[name])
            raise SpecError(
                f"{self._source}: tensor {name} has shape {list(shape)}, config.json promises {promised}.",
                remedy="config.json and weights belong to different models; download both again.",
            )
        self._used.add(name)
        values = self._checkpoint.load(name)
        if not np.isfinite(values).all():
            raise SpecError(
                f"{self._source}: tensor {name} has values that are no numbers (NaN or infinite).",
                remedy="Download the checkpoint again; an engine of it would answer nonsense.",
            )
        return values

    def _name_in_checkpoint(self, name: str) -> str:
        split = split_layer(name)
        return name if split is None else f"{LAYER_PREFIX}{self._layers[split[0]]}.{split[1]}"

    def _has_copied_head(self) -> bool:
        """Whether the checkpoint stores a tied output head a second time. Raises SpecError if it is no copy."""
        if HEAD in self._shapes or HEAD not in self._checkpoint.tensors:
            return False
        if not self._checkpoint.are_equal(HEAD, EMBEDDING):
            raise SpecError(
                f"{self._source} says tie_word_embeddings, but its {HEAD} differs from {EMBEDDING}.",
                remedy="Set tie_word_embeddings to false if the model was trained so, or remove the tensor.",
            )
        return True

    def _is_dropped(self, name: str) -> bool:
        split = split_layer(name)
        return split is not None and split[0] not in self._layers and name in self._shapes

    def check_all_used(self) -> None:
        """Raises SpecError for a tensor that would silently be left out of the engine."""
        known = self._used | ({HEAD} if self._has_copied_head() else set())
        known |= {name for name in self._checkpoint.tensors if self._is_dropped(name)}
        unknown = [
            name for name in self._checkpoint.tensors if name not in known and not name.endswith(IGNORED_TENSORS)
        ]
        if unknown:
            raise SpecError(
                f"{self._source} has {len(unknown)} tensors that this architecture does not know, the first is "
                f"{sorted(unknown)[0]}.",
                remedy="Check `architectures` and the bias settings in config.json.",
            )


def expected_shapes(facts: ModelFacts) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor that the model needs, by Hugging Face name; [out, in] for matrices."""
    hidden, inner = facts.hidden_size, facts.intermediate_size
    q, kv = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    matrices = {
        "self_attn.q_proj": (q, hidden, facts.qkv_bias),
        "self_attn.k_proj": (kv, hidden, facts.qkv_bias),
        "self_attn.v_proj": (kv, hidden, facts.qkv_bias),
        "self_attn.o_proj": (hidden, q, facts.output_bias),
        "mlp.gate_proj": (inner, hidden, facts.mlp_bias),
        "mlp.up_proj": (inner, hidden, facts.mlp_bias),
        "mlp.down_proj": (hidden, inner, facts.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (facts.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not facts.tied_embeddings:
        shapes[HEAD] = (facts.vocab_size, hidden)
    for layer in range(facts.layers):
        prefix = f"{LAYER_PREFIX}{layer}"
        shapes[f"{prefix}.input_layernorm.weight"] = (hidden,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
        for name, (rows, columns, has_bias) in matrices.items():
            shapes[f"{prefix}.{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{prefix}.{name}.bias"] = (rows,)
    return shapes


def _check_unquantised(config: Mapping[str, Any], source: Path) -> None:
    recorded = source / OPTIONAL_NAMES["quantization"]
    files = ModelFiles(str(source), "", config, quantization=load_json_object(recorded) if recorded.is_file() else {})
    stored = resolve_source_quantization(files)
    if stored != UNQUANTISED:
        raise SpecError(f"{source}: the checkpoint is already quantised ({stored}).", remedy=UNQUANTISED_REMEDY)


def _check_length(facts: ModelFacts, max_seq_len: int, source: Path) -> None:
    if max_seq_len > facts.max_position_embeddings:
        raise SpecError(
            f"limits ask for sequences of {max_seq_len} tokens (prompt, answer and draft), but {source} was trained "
            f"for {facts.max_position_embeddings}.",
            remedy="Lower limits.max_input_len or limits.max_output_len in the spec.",
        )


def _pretrained_config(facts: ModelFacts, weight_bits: int, *, is_exact: bool) -> dict[str, Any]:
    return {
        "architecture": facts.architecture,
        "dtype": "float32",
        "logits_dtype": "float32",
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads,
        "num_key_value_heads": facts.kv_heads,
        "head_size": facts.head_dim,
        "max_position_embeddings": facts.max_position_embeddings,
        "norm_epsilon": facts.rms_norm_eps,
        "rotary_base": facts.rope_theta,
        "rotary_scaling": None if facts.rope_scaling is None else asdict(facts.rope_scaling),
        "tie_word_embeddings": facts.tied_embeddings,
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
        "quantization": {"weight_bits": weight_bits, "block_size": BLOCK_SIZES.get(weight_bits), "is_exact": is_exact},
    }


def _build_config(params: Mapping[str, Any]) -> dict[str, Any]:
    bound = {"max_num_tokens": params["max_num_tokens"]} if "max_num_tokens" in params else {}
    return {
        **bound,
        "max_batch_size": params["max_batch_size"],
        "max_input_len": params["max_input_len"],
        "max_seq_len": params["max_seq_len"],
        "max_draft_len": params["max_draft_len"],
        "max_beam_width": 1,
        "speculative_decoding_mode": params["speculative_decoding_mode"],
        "gather_generation_logits": True,
        "kv_cache_type": "continuous",
        "engine_format": ENGINE_FORMAT,
    }
