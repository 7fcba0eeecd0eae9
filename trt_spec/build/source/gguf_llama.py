"""A Llama in GGUF, rewritten as an ordinary Hugging Face folder, so that one build path serves every model.

Quantised weights are expanded to float32, one block of rows at a time: memory stays bounded whatever the model's size.
In float32 they are exactly the values that GGUF means, which int4 engines find again (trt_spec.build.onnx.grid).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trt_spec.build.source.gguf_metadata import Metadata, import_extra, open_gguf
from trt_spec.build.source.gguf_tokenizer import render_tokenizer, token_id, tokenizer_config
from trt_spec.errors import SpecError
from trt_spec.util.safetensors_header import render_header

ARCHITECTURE = "llama"
STORED_DTYPE = "F32"
_BLOCK_ELEMENTS = 2 << 20  # 8 MiB of float32 at a time
_ORIGINAL_FOLDER = "Start from the model's original Hugging Face folder instead."


@dataclass(frozen=True)
class LlamaShape:
    """The sizes that fix every tensor's shape."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocab: int
    tied: bool


@dataclass(frozen=True)
class Row:
    """One tensor: its name there and here, its shape here, and the heads by which its rows are permuted (or 0)."""

    theirs: str
    ours: str
    shape: tuple[int, ...]
    permuted_heads: int = 0


def convert_gguf(gguf_path: Path, folder: Path, *, progress: Callable[[str], None]) -> None:
    """Write config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json.

    ``folder`` exists and is the caller's to publish. Raises SpecError for a file that is no whole Llama GGUF, with the
    tensor or key named; EnvironmentMissing without the gguf or tokenizers package.
    """
    reader = open_gguf(gguf_path)
    metadata = Metadata(gguf_path, reader)
    shape = load_shape(metadata, reader)
    rows = plan_rows(shape)
    tensors = _account(gguf_path, reader, rows)
    progress(f"expanding {len(rows)} tensors of {gguf_path.name} to float32")
    _write_safetensors(folder / "model.safetensors", gguf_path, tensors, rows)
    progress("writing the tokenizer")
    (folder / "tokenizer.json").write_text(render_tokenizer(metadata), encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", tokenizer_config(metadata))
    _write_json(folder / "config.json", model_config(metadata, shape))
    _write_json(folder / "generation_config.json", _special_ids(metadata))


def load_shape(metadata: Metadata, reader: Any) -> LlamaShape:
    """Return the sizes of a Llama GGUF. Raises SpecError for another architecture or an unusual variant."""
    architecture = metadata.string("general.architecture")
    if architecture != ARCHITECTURE:
        raise SpecError(
            f"{metadata.path} is of architecture {architecture!r}, expected {ARCHITECTURE!r}.", remedy=_ORIGINAL_FOLDER
        )
    heads = metadata.integer("llama.attention.head_count")
    kv_heads = metadata.optional_integer("llama.attention.head_count_kv") or heads
    hidden = metadata.integer("llama.embedding_length")
    if min(heads, kv_heads, hidden) < 1 or heads % kv_heads:
        raise SpecError(
            f"{metadata.path}: {heads} heads over {kv_heads} key-value heads of width {hidden} do not divide."
        )
    head_size = metadata.optional_integer("llama.attention.key_length") or hidden // heads
    _check_variant(metadata, head_size)
    return LlamaShape(
        layers=metadata.integer("llama.block_count"),
        hidden=hidden,
        intermediate=metadata.integer("llama.feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocab=len(metadata.strings("tokenizer.ggml.tokens")),
        tied=all(tensor.name != "output.weight" for tensor in reader.tensors),
    )


def plan_rows(shape: LlamaShape) -> list[Row]:
    """Return every tensor of the model in the order in which it is stored."""
    s = shape
    rows = [Row("token_embd.weight", "model.embed_tokens.weight", (s.vocab, s.hidden))]
    for layer in range(s.layers):
        there, here = f"blk.{layer}", f"model.layers.{layer}"
        query, key_value = s.heads * s.head_size, s.kv_heads * s.head_size
        rows += [
            Row(f"{there}.attn_norm.weight", f"{here}.input_layernorm.weight", (s.hidden,)),
            Row(f"{there}.attn_q.weight", f"{here}.self_attn.q_proj.weight", (query, s.hidden), s.heads),
            Row(f"{there}.attn_k.weight", f"{here}.self_attn.k_proj.weight", (key_value, s.hidden), s.kv_heads),
            Row(f"{there}.attn_v.weight", f"{here}.self_attn.v_proj.weight", (key_value, s.hidden)),
            Row(f"{there}.attn_output.weight", f"{here}.self_attn.o_proj.weight", (s.hidden, query)),
            Row(f"{there}.ffn_norm.weight", f"{here}.post_attention_layernorm.weight", (s.hidden,)),
            Row(f"{there}.ffn_gate.weight", f"{here}.mlp.gate_proj.weight", (s.intermediate, s.hidden)),
            Row(f"{there}.ffn_up.weight", f"{here}.mlp.up_proj.weight", (s.intermediate, s.hidden)),
            Row(f"{there}.ffn_down.weight", f"{here}.mlp.down_proj.weight", (s.hidden, s.intermediate)),
        ]
    rows.append(Row("output_norm.weight", "model.norm.weight", (s.hidden,)))
    if not s.tied:
        rows.append(Row("output.weight", "lm_head.weight", (s.vocab, s.hidden)))
    return rows


def model_config(metadata: Metadata, shape: LlamaShape) -> dict[str, Any]:
    """Return config.json as transformers 4 spells it (5 reads it too)."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocab,
        "max_position_embeddings": metadata.integer("llama.context_length"),
        "rms_norm_eps": metadata.number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.number("llama.rope.freq_base"),
        "rope_scaling": None,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",  # of the original; what is stored is wider
        **_special_ids(metadata),
    }


def unpermute(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Undo llama.cpp's row order of q and k, [heads * head_size, ...].

    GGUF interleaves the two halves that rotate together (x0 y0 x1 y1 ...); Hugging Face keeps the halves apart
    (x0 x1 ... y0 y1 ...). Rows may be values or still quantised bytes: only their order changes.
    """
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _check_variant(metadata: Metadata, head_size: int) -> None:
    """Refuse what a plain Llama config.json would silently misrepresent."""
    scaling = metadata.optional_string("llama.rope.scaling.type") or "none"
    experts = metadata.optional_integer("llama.expert_count") or 0
    rotated = metadata.optional_integer("llama.rope.dimension_count") or head_size
    value_size = metadata.optional_integer("llama.attention.value_length") or head_size
    for found, is_plain in (
        (f"rope scaling {scaling!r}", scaling == "none"),
        (f"{experts} experts", experts == 0),
        (f"{rotated} of {head_size} rotated dimensions", rotated == head_size),
        (f"value heads of size {value_size} and key heads of size {head_size}", value_size == head_size),
        (f"an odd head size of {head_size}", head_size % 2 == 0),
    ):
        if not is_plain:
            raise SpecError(
                f"{metadata.path} has {found}: a Llama variant not handled from GGUF.", remedy=_ORIGINAL_FOLDER
            )


def _account(path: Path, reader: Any, rows: list[Row]) -> dict[str, Any]:
    """Return the file's tensors by name, all expected and of the expected shape. Raises SpecError naming others."""
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    expected = {row.theirs for row in rows}
    for label, names in (("lacks", expected - tensors.keys()), ("has the unknown", tensors.keys() - expected)):
        if names:
            raise SpecError(f"{path} {label} tensor {', '.join(sorted(names))}.", remedy=_ORIGINAL_FOLDER)
    for row in rows:
        found = tuple(int(size) for size in reversed(tensors[row.theirs].shape))  # GGUF lists the fastest axis first
        if found != row.shape:
            raise SpecError(f"{path}: tensor {row.theirs} has shape {list(found)}, expected {list(row.shape)}.")
    return tensors


def _write_safetensors(path: Path, source: Path, tensors: dict[str, Any], rows: list[Row]) -> None:
    with path.open("wb") as file:
        # transformers refuses files that do not name a framework; "pt" is what every published checkpoint says.
        file.write(render_header(((row.ours, STORED_DTYPE, row.shape) for row in rows), {"format": "pt"}))
        for row in rows:
            for block in _expand(source, tensors[row.theirs], row):
                file.write(block.astype("<f4", copy=False).tobytes())


def _expand(source: Path, tensor: Any, row: Row) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the tensor's float32 values in blocks of rows; rows are re-ordered while still quantised: cheapest."""
    gguf = import_extra("gguf")
    stored = tensor.data if tensor.data.ndim > 1 else tensor.data[np.newaxis]
    if row.permuted_heads:
        stored = unpermute(stored, row.permuted_heads)
    block_rows = max(1, _BLOCK_ELEMENTS // row.shape[-1])
    for start in range(0, stored.shape[0], block_rows):
        try:
            values = gguf.dequantize(stored[start : start + block_rows], tensor.tensor_type)
        except NotImplementedError as error:
            raise SpecError(
                f"{source}: tensor {row.theirs} is {tensor.tensor_type.name}, which the gguf package cannot expand.",
                remedy=_ORIGINAL_FOLDER,
            ) from error
        yield values.astype(np.float32, copy=False)


def _special_ids(metadata: Metadata) -> dict[str, Any]:
    """Ids by role; a model that ends turns (eot) and texts (eos) with different tokens stops at either."""
    roles = (("bos", "bos"), ("eos", "eos"), ("eot", "eot"), ("pad", "padding"))
    ids = {role: token_id(metadata, f"tokenizer.ggml.{key}_token_id") for role, key in roles}
    ends = sorted({index for index in (ids["eos"], ids["eot"]) if index is not None})
    ordered = {
        "bos_token_id": ids["bos"],
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": ids["pad"],
    }
    return {key: value for key, value in ordered.items() if value not in (None, [])}


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
