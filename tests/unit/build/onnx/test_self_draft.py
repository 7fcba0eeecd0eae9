"""Engines of some of a checkpoint's layers, against checkpoints that were cut by hand."""

import json
import shutil

import numpy as np
import pytest

from trt_spec.build.onnx.engine import TensorLoader, write_engine
from trt_spec.build.source.checkpoint import Checkpoint
from trt_spec.errors import SpecError
from trt_spec.plan.facts import resolve_facts
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.engine_folder import load_limits
from trt_spec.serve.local_backend.feed import Piece
from trt_spec.util.safetensors_header import load_header, render_header

PARAMS = {
    "max_batch_size": 4,
    "max_input_len": 64,
    "max_draft_len": 8,
    "max_seq_len": 128,
    "speculative_decoding_mode": 2,
}
CUTS = [
    ("pair-target", [0, 2], 32),
    ("pair-target", [1], 32),
    ("pair-target", [1, 2], 8),
    ("llama-mlp-bias", [1], 32),
    ("llama-tied-rope3", [0], 4),
    ("qwen2-bias", [1], 32),
]


def rewrite(folder, change):
    """The checkpoint's tensors, as change({name: (dtype, shape, bytes)}) leaves them."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    tensors = {n: (s.dtype, s.shape, raw[s.begin_bytes : s.end_bytes]) for n, s in load_header(path).items()}
    tensors = change(tensors)
    header = render_header((name, dtype, shape) for name, (dtype, shape, _) in tensors.items())
    path.write_bytes(header + b"".join(content for _, _, content in tensors.values()))


def cut_by_hand(source, folder, layers):
    """A checkpoint of these layers alone, numbered anew, as one would save it with transformers."""
    shutil.copytree(source, folder)

    def keep(tensors):
        kept = {}
        for name, tensor in tensors.items():
            parts = name.split(".")
            if parts[1] == "layers":
                if int(parts[2]) not in layers:
                    continue
                parts[2] = str(layers.index(int(parts[2])))
            kept[".".join(parts)] = tensor
        return kept

    rewrite(folder, keep)
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": len(layers)}
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def built(source, folder, **params):
    folder.mkdir()
    write_engine(source, {**PARAMS, **params}, folder, lambda _: None)
    return folder


def logits_of(folder, ids):
    (logits,) = Engine(folder).forward([Piece(0, 0, ids, len(ids))])
    return logits.copy()


@pytest.mark.parametrize(("name", "layers", "bits"), CUTS)
def test_an_engine_of_some_layers_is_that_of_a_checkpoint_cut_by_hand(tmp_path, tiny, name, layers, bits):
    cut = cut_by_hand(tiny / name, tmp_path / "cut", layers)
    ours = built(tiny / name, tmp_path / "ours", weight_bits=bits, layers=layers)
    theirs = built(cut, tmp_path / "theirs", weight_bits=bits)
    for file in ("model.onnx", "model.onnx.data", "config.json"):
        assert (ours / file).read_bytes() == (theirs / file).read_bytes(), file
    assert load_limits(ours).layers == len(layers)
    ids = list(range(5, 25))
    logits = logits_of(ours, ids)
    assert np.array_equal(logits, logits_of(theirs, ids))
    whole = built(tiny / name, tmp_path / "whole", weight_bits=bits)
    assert not np.allclose(logits, logits_of(whole, ids), atol=1e-2)


def test_all_layers_named_are_the_whole_model(tmp_path, tiny):
    named = built(tiny / "pair-target", tmp_path / "named", weight_bits=32, layers=[0, 1, 2])
    whole = built(tiny / "pair-target", tmp_path / "whole", weight_bits=32)
    assert (named / "model.onnx.data").read_bytes() == (whole / "model.onnx.data").read_bytes()


@pytest.mark.parametrize("layers", [[3], [0, 9]])
def test_a_layer_that_is_not_there_is_refused(tmp_path, tiny, layers):
    with pytest.raises(SpecError, match="has 3 layers, 0 to 2"):
        built(tiny / "pair-target", tmp_path / "engine", weight_bits=32, layers=layers)


@pytest.fixture
def broken(tmp_path, tiny):
    """broken(change of tensors, change of config) -> a folder with that copy of pair-target."""

    def make(change=lambda tensors: tensors, name="pair-target", **config):
        folder = tmp_path / "broken"
        shutil.copytree(tiny / name, folder)
        rewrite(folder, change)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    return make


def test_a_fault_in_a_kept_layer_is_named_as_in_the_checkpoint(tmp_path, broken):
    name = "model.layers.2.mlp.up_proj.weight"

    def transpose(tensors):
        dtype, (rows, columns), content = tensors[name]
        return {**tensors, name: (dtype, (rows // 2, columns * 2), content)}

    with pytest.raises(SpecError, match=name):
        built(broken(transpose), tmp_path / "engine", weight_bits=32, layers=[0, 2])


def test_a_missing_or_unknown_tensor_of_a_dropped_layer_is_still_a_fault(tmp_path, broken):
    def exchange(tensors):
        norm = tensors.pop("model.layers.1.input_layernorm.weight")
        return {**tensors, "model.layers.1.self_attn.q_norm.weight": norm}

    folder = broken(exchange)
    with pytest.raises(SpecError, match=r"lacks 1 tensors.*model.layers.1.input_layernorm"):
        built(folder, tmp_path / "first", weight_bits=32, layers=[0, 2])
    rewrite(folder, lambda t: {**t, "model.layers.1.input_layernorm.weight": t["model.norm.weight"]})
    with pytest.raises(SpecError, match=r"does not know.*model.layers.1.self_attn.q_norm"):
        built(folder, tmp_path / "second", weight_bits=32, layers=[0, 2])


def test_only_kept_layers_are_read(tiny):
    source = tiny / "pair-target"
    with Checkpoint.open(source) as checkpoint:
        facts = resolve_facts(checkpoint.config, source="config.json")
        loader, read = TensorLoader(checkpoint, facts, source, (2,)), []
        load = checkpoint.load
        checkpoint.load = lambda name: read.append(name) or load(name)
        loader("model.layers.0.mlp.up_proj.weight")
        loader("model.norm.weight")
    assert read == ["model.layers.2.mlp.up_proj.weight", "model.norm.weight"]


def test_a_tied_head_is_stored_again_or_is_a_fault(tmp_path, broken):
    embedding = "model.embed_tokens.weight"
    folder = broken(lambda t: {**t, "lm_head.weight": t[embedding]}, name="qwen2-bias", tie_word_embeddings=True)
    built(folder, tmp_path / "copy", weight_bits=32)

    def change(tensors):
        dtype, shape, content = tensors[embedding]
        return {**tensors, "lm_head.weight": (dtype, shape, content[:-1] + bytes([content[-1] ^ 1]))}

    rewrite(folder, change)
    with pytest.raises(SpecError, match=r"says tie_word_embeddings, but its lm_head.weight differs"):
        built(folder, tmp_path / "other", weight_bits=32)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"tie_word_embeddings": False}, "lacks 1 tensors.*lm_head.weight"),
        ({"attention_bias": True, "architectures": ["LlamaForCausalLM"]}, "o_proj.bias"),
        ({"mlp_bias": True, "architectures": ["LlamaForCausalLM"]}, "bias"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"final_logit_softcapping": 30.0}, "soft capping"),
        ({"num_experts": 8}, "mixture of experts"),
        ({"quantization_config": {"quant_method": "gptq"}}, "already quantised .GPTQ"),
        ({"quantization_config": "int4"}, "already quantised .UNKNOWN"),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "COMPRESSED-TENSORS"),
    ],
)
def test_what_the_graph_does_not_compute_is_refused_when_building(tmp_path, broken, config, words):
    with pytest.raises(SpecError, match=words):
        built(broken(name="qwen2-bias", **config), tmp_path / "engine", weight_bits=32)


def test_a_modelopt_checkpoint_is_refused(tmp_path, broken):
    folder = broken()
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    with pytest.raises(SpecError, match=r"already quantised .FP8"):
        built(folder, tmp_path / "engine", weight_bits=32)
