"""Small sources to convert, made here: random models of the Llama family as Hugging Face stores them."""

import json
from pathlib import Path

import numpy as np
import pytest

from trt_spec.build.checkpoint.convert import run_convert
from trt_spec.build.checkpoint.options import ConvertOptions
from trt_spec.util.bfloat16 import bf16_bits, bf16_to_float32
from trt_spec.util.safetensors_header import load_header, render_header

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 40,
}
DTYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F8_E4M3": "u1"}
NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def list_shapes(config):
    """Shape of every tensor of a source, by name."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim", hidden // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    qwen = config["architectures"][0].startswith("Qwen2")
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes |= {f"{layer}{norm}_layernorm.weight": (hidden,) for norm in ("input", "post_attention")}
        for name, rows, columns in (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (rows, columns)
            if config.get("attention_bias") or (qwen and name != "o"):
                shapes[f"{layer}self_attn.{name}_proj.bias"] = (rows,)
        for name, rows, columns in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
            shapes[f"{layer}mlp.{name}_proj.weight"] = (rows, columns)
            if config.get("mlp_bias"):
                shapes[f"{layer}mlp.{name}_proj.bias"] = (rows,)
    return shapes


def write_tensors(path, tensors):
    """Write {name: (dtype, array of that dtype's storage)} as one safetensors file."""
    header = render_header([(name, dtype, array.shape) for name, (dtype, array) in tensors.items()], {"format": "pt"})
    with Path(path).open("wb") as file:
        file.write(header)
        for _, array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def load_tensors(path):
    """{name: (dtype, array)} of a safetensors file; bfloat16 and FP8 as their bits."""
    data = Path(path).read_bytes()
    return {
        name: (
            span.dtype,
            np.frombuffer(data[span.begin_bytes : span.end_bytes], DTYPES[span.dtype]).reshape(span.shape),
        )
        for name, span in load_header(Path(path)).items()
    }


def as_float(dtype, array):
    return bf16_to_float32(array) if dtype == "BF16" else array.astype(np.float32)


def encode(dtype, values):
    values = values.astype(np.float32)
    return bf16_bits(values) if dtype == "BF16" else values.astype(DTYPES[dtype])


@pytest.fixture(scope="session")
def golden():
    """The recorded sources and outputs of NVIDIA's converters."""
    return Path(__file__).parents[3] / "golden" / "checkpoints"


@pytest.fixture
def make_source(tmp_path):
    """make_source(change=None, **config) -> (folder, tensors); ``change`` edits {name: (dtype, array)} in place."""

    def make(change=None, folder="model", quantization=None, **config):
        merged = {**CONFIG, **config}
        merged = {key: value for key, value in merged.items() if value is not None}
        stored = NAMES[merged["torch_dtype"]]
        rng = np.random.default_rng(7)
        tensors = {
            name: (stored, encode(stored, rng.normal(0, 0.1, shape)))
            for name, shape in list_shapes(
                {**CONFIG, **config, "tie_word_embeddings": bool(merged.get("tie_word_embeddings"))}
            ).items()
        }
        if change is not None:
            change(tensors)
        root = tmp_path / folder
        root.mkdir()
        (root / "config.json").write_text(json.dumps(merged))
        if quantization is not None:
            (root / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
        write_tensors(root / "model.safetensors", tensors)
        return root, tensors

    return make


@pytest.fixture
def convert(tmp_path):
    """convert(model, **options) -> Converted, into tmp_path/out unless said otherwise."""

    def run(model, **options):
        output = options.pop("output", tmp_path / "out")
        names = {"tp": "tensor_parallel", "pp": "pipeline_parallel"}
        return run_convert(
            ConvertOptions(model, output, **{names.get(key, key): value for key, value in options.items()}),
            lambda _: None,
        )

    return run


@pytest.fixture
def tools():
    """The helpers of this file, for tests that write or read tensors themselves."""

    class Tools:
        load = staticmethod(load_tensors)
        write = staticmethod(write_tensors)
        as_float = staticmethod(as_float)
        encode = staticmethod(encode)

    return Tools
