from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors import safe_open

from trt_spec.build.source import gguf_llama
from trt_spec.build.source.checkpoint import Checkpoint
from trt_spec.build.source.gguf_llama import convert_gguf, unpermute
from trt_spec.errors import EnvironmentMissing, SpecError

HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 16
FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def convert(tiny, tmp_path: Path, name: str = "out") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    convert_gguf(tiny.write(tmp_path / f"{name}.gguf"), folder, progress=lambda _: None)
    return folder


def interleave(values: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order, row by row: row 2i + half of a head is Hugging Face's row half * size/2 + i."""
    size = values.shape[0] // heads
    out = np.empty_like(values)
    for head in range(heads):
        for half in range(2):
            for i in range(size // 2):
                out[head * size + 2 * i + half] = values[head * size + half * size // 2 + i]
    return out


@pytest.mark.parametrize(("heads", "size", "columns"), [(1, 2, 1), (4, 16, 64), (3, 64, 8), (2, 6, 5)])
def test_unpermute_inverts_the_row_order_of_llama_cpp(heads: int, size: int, columns: int) -> None:
    original = np.arange(heads * size * columns, dtype=np.float32).reshape(heads * size, columns)
    assert np.array_equal(unpermute(interleave(original, heads), heads), original)


def test_every_tensor_arrives_with_its_values(tiny, tmp_path: Path) -> None:
    folder = convert(tiny, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert tiny.quantised
    with Checkpoint.open(folder) as checkpoint:
        assert len(checkpoint.tensors) == len(tiny.tensors) == 20
        assert {info.dtype for info in checkpoint.tensors.values()} == {"F32"}
        for layer in range(2):
            for theirs, ours, heads in (("attn_q", "q_proj", HEADS), ("attn_k", "k_proj", KV_HEADS)):
                stored = _as_stored(tiny, f"blk.{layer}.{theirs}.weight")
                loaded = checkpoint.load(f"model.layers.{layer}.self_attn.{ours}.weight")
                assert np.array_equal(interleave(loaded, heads), stored)
        for theirs, ours in (
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output_norm.weight", "model.norm.weight"),
            ("blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight"),
            ("blk.1.attn_v.weight", "model.layers.1.self_attn.v_proj.weight"),
            ("blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight"),
            ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
            ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"),
            ("blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight"),
            ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
        ):
            assert np.array_equal(checkpoint.load(ours), _as_stored(tiny, theirs)), ours


def _as_stored(tiny, name: str) -> np.ndarray:
    if name in tiny.quantised:
        kind = gguf.GGMLQuantizationType.Q8_0
        return gguf.dequantize(gguf.quantize(tiny.tensors[name], kind), kind)
    return tiny.tensors[name]


def test_float16_tensors_and_small_blocks_give_the_same_values(tiny, tmp_path: Path, monkeypatch) -> None:
    tiny.quantised, tiny.half = set(), {"blk.0.attn_v.weight"}
    monkeypatch.setattr(gguf_llama, "_BLOCK_ELEMENTS", 3 * 64)  # three rows at a time, none divides 32 evenly
    with Checkpoint.open(convert(tiny, tmp_path)) as checkpoint:
        loaded = checkpoint.load("model.layers.0.self_attn.v_proj.weight")
        assert np.array_equal(loaded, tiny.tensors["blk.0.attn_v.weight"].astype(np.float16).astype(np.float32))
        query = checkpoint.load("model.layers.0.self_attn.q_proj.weight")
        assert np.array_equal(interleave(query, HEADS), tiny.tensors["blk.0.attn_q.weight"])


def test_the_safetensors_package_opens_the_file(tiny, tmp_path: Path) -> None:
    path = convert(tiny, tmp_path) / "model.safetensors"
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert len(list(file.keys())) == 20
        assert file.get_slice("model.layers.0.mlp.down_proj.weight").get_shape() == [64, 96]


def test_config_comes_from_the_keys(tiny, tmp_path: Path) -> None:
    folder = convert(tiny, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": len(tiny.keys["tokenizer.ggml.tokens"]),
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-05,  # not 9.999999747378752e-06
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    assert expected.items() <= {key: value for key, value in config.items() if key in expected}.items()
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def test_a_turn_end_is_an_end_too(tiny, tmp_path: Path) -> None:
    tiny.keys["tokenizer.ggml.eot_token_id"] = 0
    generation = json.loads((convert(tiny, tmp_path) / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [0, 2]


def test_an_output_tensor_unties_the_embeddings(tiny, tmp_path: Path) -> None:
    tiny.tensors["output.weight"] = tiny.tensors["token_embd.weight"] * 2
    folder = convert(tiny, tmp_path)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    with Checkpoint.open(folder) as checkpoint:
        assert np.array_equal(checkpoint.load("lm_head.weight"), tiny.tensors["output.weight"])


def test_explicit_head_size_wins(tiny, tmp_path: Path) -> None:
    tiny.keys |= {"llama.attention.head_count": 2, "llama.attention.head_count_kv": 1}
    tiny.keys |= {"llama.attention.key_length": 16, "llama.attention.value_length": 16}
    for layer in range(2):
        for name, rows, columns in (
            ("attn_q", 32, 64),
            ("attn_k", 16, 64),
            ("attn_v", 16, 64),
            ("attn_output", 64, 32),
        ):
            tiny.tensors[f"blk.{layer}.{name}.weight"] = np.ones((rows, columns), np.float32)
    assert json.loads((convert(tiny, tmp_path) / "config.json").read_text())["head_dim"] == 16


def test_two_conversions_give_the_same_bytes(tiny, tmp_path: Path) -> None:
    first, second = convert(tiny, tmp_path, "a"), convert(tiny, tmp_path, "b")
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn'"),
        ({"llama.expert_count": 8}, "8 experts"),
        ({"llama.rope.dimension_count": 8}, "8 of 16 rotated dimensions"),
        ({"llama.attention.value_length": 8}, "value heads of size 8"),
        ({"llama.attention.head_count": 3}, "do not divide"),
        ({"llama.attention.head_count": "four"}, "llama.attention.head_count is a str, expected a int"),
        ({"llama.block_count": 3}, "lacks tensor blk.2.attn_k.weight"),
        ({"llama.block_count": 1}, "has the unknown tensor blk.1.attn_k.weight"),
        ({"llama.feed_forward_length": 95}, "tensor blk.0.ffn_gate.weight has shape [96, 64], expected [95, 64]"),
        ({"tokenizer.ggml.eos_token_id": 100000}, "tokenizer.ggml.eos_token_id is 100000"),
    ],
)
def test_contradicting_keys_are_named(tiny, tmp_path: Path, change: dict, said: str) -> None:
    tiny.keys |= change
    with pytest.raises(SpecError) as caught:
        convert(tiny, tmp_path)
    assert said in str(caught.value)
    assert "out.gguf" in str(caught.value)


def test_another_architecture_is_refused(tiny, tmp_path: Path) -> None:
    tiny.architecture = "qwen2"
    with pytest.raises(SpecError, match="architecture 'qwen2', expected 'llama'"):
        convert(tiny, tmp_path)


@pytest.mark.parametrize("key", ["llama.rope.freq_base", "llama.context_length", "tokenizer.ggml.tokens"])
def test_a_missing_key_is_named(tiny, tmp_path: Path, key: str) -> None:
    del tiny.keys[key]
    with pytest.raises(SpecError, match=f"has no {key}"):
        convert(tiny, tmp_path)


def test_missing_and_unknown_tensors_are_named(tiny, tmp_path: Path) -> None:
    del tiny.tensors["blk.1.ffn_up.weight"]
    with pytest.raises(SpecError, match=r"lacks tensor blk\.1\.ffn_up\.weight"):
        convert(tiny, tmp_path, "missing")
    tiny.tensors["blk.1.ffn_up.weight"] = np.ones((96, 64), np.float32)
    tiny.tensors["rope_freqs.weight"] = np.ones(8, np.float32)
    with pytest.raises(SpecError, match=r"has the unknown tensor rope_freqs\.weight"):
        convert(tiny, tmp_path, "unknown")


def test_a_quantisation_that_gguf_cannot_expand_is_named(tiny, tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(gguf, "dequantize", refuse)
    with pytest.raises(SpecError, match=r"tensor token_embd\.weight is F32, which the gguf package cannot expand"):
        convert(tiny, tmp_path)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a gguf file at all", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64])
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"bad\.gguf is not a whole GGUF file"):
        convert_gguf(path, tmp_path, progress=lambda _: None)
    with pytest.raises(SpecError, match=r"Cannot read .*none\.gguf"):
        convert_gguf(tmp_path / "none.gguf", tmp_path, progress=lambda _: None)


@pytest.mark.parametrize("kept_fraction", [0.02, 0.5, 0.999])
def test_a_cut_gguf_is_refused(tiny, tmp_path: Path, kept_fraction: float) -> None:
    path = tiny.write(tmp_path / "cut.gguf")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept_fraction)])
    with pytest.raises(SpecError, match=r"cut\.gguf is not a whole GGUF file"):
        convert_gguf(path, tmp_path, progress=lambda _: None)


@pytest.mark.parametrize("package", ["gguf", "tokenizers"])
def test_a_missing_package_names_the_extra(tiny, tmp_path: Path, monkeypatch, package: str) -> None:
    path = tiny.write(tmp_path / "tiny.gguf")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        EnvironmentMissing, match=rf"'{package}' is not installed\. Run: pip install 'trtspec\[local\]'"
    ):
        convert_gguf(path, tmp_path, progress=lambda _: None)
