"""What no recorded checkpoint covers, against the rules written out in numpy."""

import json

import ml_dtypes
import numpy as np
import pytest

from trt_spec.build.checkpoint.float8 import decode_table
from trt_spec.util.bfloat16 import bf16_bits, bf16_to_float32

HEAD = 8  # hidden 32 over 4 heads


def fp8(values):
    return values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def rowwise(values):
    values = np.clip(values.astype(np.float32), -1200, 1200)
    scales = np.maximum(np.abs(values).max(axis=1) / np.float32(448), np.float32(1 / (448 * 512)))
    return fp8(values / scales[:, None]), scales


def numbers(tools, tensors, name):
    return tools.as_float(*tensors[name])


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_type_in_and_out(make_source, convert, tools, tmp_path, stored, dtype):
    model, source = make_source(torch_dtype=stored)
    convert(model, dtype=dtype, tp=2)
    ours = tools.load(tmp_path / "out" / "rank1.safetensors")
    kind, found = ours["transformer.layers.1.mlp.proj.weight"]
    expected = numbers(tools, source, "model.layers.1.mlp.down_proj.weight")[:, 24:]
    assert kind == {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    assert found.tobytes() == tools.encode(kind, expected).tobytes()


def test_auto_turns_float32_into_float16_and_says_so(make_source, convert, tmp_path):
    done = convert(make_source(torch_dtype="float32")[0])
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float16"
    assert any("float16" in warning for warning in done.warnings)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_rowwise_from_other_types(make_source, convert, tools, tmp_path, stored):
    model, source = make_source(torch_dtype=stored)
    convert(model, dtype="bfloat16", quantization="fp8_rowwise", tp=2)
    ours = tools.load(tmp_path / "out" / "rank1.safetensors")
    codes, scales = rowwise(numbers(tools, source, "model.layers.2.self_attn.o_proj.weight")[:, 16:])
    assert np.array_equal(ours["transformer.layers.2.attention.dense.weight"][1], codes)
    assert np.array_equal(ours["transformer.layers.2.attention.dense.per_channel_scale"][1], scales)


def test_rowwise_bounds_weights_and_keeps_zero_rows(make_source, convert, tools, tmp_path):
    def change(tensors):
        weight = np.zeros((48, 32), dtype=np.float32)
        weight[0], weight[1, :3] = 5000, (1e-9, -2000, 3)
        tensors["model.layers.1.mlp.up_proj.weight"] = ("BF16", bf16_bits(weight))

    model, source = make_source(change)
    convert(model, quantization="fp8_rowwise")
    ours = tools.load(tmp_path / "out" / "rank0.safetensors")
    codes, scales = rowwise(numbers(tools, source, "model.layers.1.mlp.up_proj.weight"))
    assert scales[2] == np.float32(1 / (448 * 512))
    assert np.array_equal(ours["transformer.layers.1.mlp.gate.weight"][1], codes)
    assert np.array_equal(ours["transformer.layers.1.mlp.gate.per_channel_scale"][1], scales)


def test_metas_recipe_quantises_the_mlp_of_middle_layers_alone(make_source, convert, tools, tmp_path):
    model, source = make_source()
    convert(model, quantization="fp8_rowwise", meta_recipe=True, pp=3)
    stages = [tools.load(tmp_path / "out" / f"rank{rank}.safetensors") for rank in range(3)]
    for stage in (stages[0], stages[2]):
        assert not any("scale" in name or "clamp" in name or kind == "F8_E4M3" for name, (kind, _) in stage.items())
    quantised = {name for name, (kind, _) in stages[1].items() if kind == "F8_E4M3"}
    assert quantised == {f"transformer.layers.0.mlp.{name}.weight" for name in ("fc", "gate", "proj")}
    clamps = {name.split(".", 3)[3] for name in stages[1] if name.endswith("clamp_val")}
    assert clamps == {"mlp.clamp_val", "post_layernorm.clamp_val"}
    codes, _ = rowwise(numbers(tools, source, "model.layers.1.mlp.gate_proj.weight"))
    assert np.array_equal(stages[1]["transformer.layers.0.mlp.fc.weight"][1], codes)


def test_t003_kv_heads_are_repeated_for_fp8_scales(golden, convert, tools, tmp_path):
    """T003: NVIDIA's converter stops at 2 KV heads over 4 ranks in FP8."""
    model = golden / "hf" / "llama-modelopt-fp8"
    done = convert(model, tp=4, tensorrt_llm="1.3.0rc3")
    assert any("2 KV heads over 4 ranks" in warning for warning in done.warnings)
    source = tools.load(model / "model.safetensors")
    attention = "model.layers.0.self_attn."
    scales = [source[f"{attention}{name}_proj.weight_scale"][1].reshape(()) for name in "qkv"]
    for rank in range(4):
        ours = tools.load(tmp_path / "out" / f"rank{rank}.safetensors")
        heads = {"q": rank, "k": rank // 2, "v": rank // 2}
        parts = []
        for name, scale in zip("qkv", scales, strict=True):
            codes = source[f"{attention}{name}_proj.weight"][1][heads[name] * HEAD : (heads[name] + 1) * HEAD]
            parts.append(fp8(decode_table()[codes] * scale / max(scales)))
        assert np.array_equal(ours["transformer.layers.0.attention.qkv.weight"][1], np.concatenate(parts))
        assert ours["transformer.layers.0.attention.qkv.weights_scaling_factor"][1] == max(scales)


def fbgemm(tools, stored_recipe):
    """Meta's layout: rows in FP8 with a [rows, 1] scale; with the recipe only the MLP of the middle layer."""

    def change(tensors):
        for name in list(tensors):
            layer = name.split(".")[2] if name.startswith("model.layers.") else None
            takes = "mlp" in name and layer == "1" if stored_recipe else layer is not None and "_proj.weight" in name
            if takes:
                codes, scales = rowwise(tools.as_float(*tensors[name]) * 3)
                tensors[name] = ("F8_E4M3", codes)
                tensors[f"{name}_scale"] = ("F32", scales[:, None])
                tensors[name.removesuffix("weight") + "input_scale_ub"] = ("F32", np.array([900], dtype=np.float32))

    return change


@pytest.mark.parametrize("stored_recipe", [True, False])
def test_fbgemm_weights_and_scales_are_taken_over(make_source, convert, tools, tmp_path, stored_recipe):
    """Formula, not recorded data: codes unchanged, scales flattened; of a module split by columns they are whole."""
    config = {"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 900.0}}
    model, source = make_source(fbgemm(tools, stored_recipe), **config)
    convert(model, tp=2)
    written = json.loads((tmp_path / "out" / "config.json").read_text())["quantization"]
    assert written["quant_algo"] == "FP8_PER_CHANNEL_PER_TOKEN"
    assert written["clamp_val"] == [-900.0, 900.0]
    assert written["use_meta_recipe"] is stored_recipe
    ours = tools.load(tmp_path / "out" / "rank1.safetensors")
    layer, theirs = "transformer.layers.1.", "model.layers.1."
    assert np.array_equal(ours[f"{layer}mlp.fc.weight"][1], source[f"{theirs}mlp.gate_proj.weight"][1][24:])
    scales = source[f"{theirs}mlp.gate_proj.weight_scale"][1][24:, 0]
    assert np.array_equal(ours[f"{layer}mlp.fc.per_channel_scale"][1], scales)
    assert np.array_equal(ours[f"{layer}mlp.proj.weight"][1], source[f"{theirs}mlp.down_proj.weight"][1][:, 24:])
    scales = source[f"{theirs}mlp.down_proj.weight_scale"][1][:, 0]
    assert np.array_equal(ours[f"{layer}mlp.proj.per_channel_scale"][1], scales)
    assert ("attention.qkv.per_channel_scale" in str(sorted(ours))) is not stored_recipe


def test_attention_and_mlp_biases(make_source, convert, tools, tmp_path):
    model, source = make_source(attention_bias=True, mlp_bias=True)
    convert(model, tp=4)
    ours = tools.load(tmp_path / "out" / "rank3.safetensors")
    layer, theirs = "transformer.layers.0.", "model.layers.0."
    q, k, v = (source[f"{theirs}self_attn.{name}_proj.bias"][1] for name in "qkv")
    expected = np.concatenate([q[24:32], k[8:16], v[8:16]])
    assert np.array_equal(ours[f"{layer}attention.qkv.bias"][1], expected)
    assert np.array_equal(ours[f"{layer}attention.dense.bias"][1], source[f"{theirs}self_attn.o_proj.bias"][1])
    assert np.array_equal(ours[f"{layer}mlp.fc.bias"][1], source[f"{theirs}mlp.gate_proj.bias"][1][36:])
    assert np.array_equal(ours[f"{layer}mlp.proj.bias"][1], source[f"{theirs}mlp.down_proj.bias"][1])


def test_a_head_size_of_its_own(make_source, convert, tools, tmp_path):
    model, source = make_source(head_dim=16)
    convert(model, tp=2)
    ours = tools.load(tmp_path / "out" / "rank1.safetensors")
    q, k, v = (source[f"model.layers.0.self_attn.{name}_proj.weight"][1] for name in "qkv")
    assert np.array_equal(
        ours["transformer.layers.0.attention.qkv.weight"][1], np.concatenate([q[32:], k[16:], v[16:]])
    )
    assert ours["rotary_inv_freq"][1].shape == (8,)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_odd_vocabulary_with_a_parallel_embedding(make_source, convert, tools, tmp_path, axis):
    model, source = make_source(vocab_size=37)
    convert(model, tp=4, embedding_axis=axis)
    ours = tools.load(tmp_path / "out" / "rank3.safetensors")
    whole = source["model.embed_tokens.weight"][1]
    found = ours["transformer.vocab_embedding.weight"][1]
    if axis:
        assert np.array_equal(found, whole[:, 24:])
    else:
        assert np.array_equal(found[:7], whole[30:])
        assert found.shape == (10, 32)
        assert not found[7:].any()


def test_layers_that_do_not_divide_follow_the_version(make_source, convert, tools, tmp_path):
    model, source = make_source()
    with pytest.raises(Exception, match="would drop the last 1 of them"):
        convert(model, pp=2, tensorrt_llm="0.17.0")
    convert(model, pp=2, tensorrt_llm="1.2.1")
    last = tools.load(tmp_path / "out" / "rank1.safetensors")
    theirs = source["model.layers.2.mlp.down_proj.weight"][1]
    assert np.array_equal(last["transformer.layers.0.mlp.proj.weight"][1], theirs)
    assert "transformer.layers.1.mlp.proj.weight" not in last


def test_kv_scales_fall_back_to_one_with_a_warning(make_source, convert, tools, tmp_path):
    done = convert(make_source()[0], kv_cache_dtype="fp8", tensorrt_llm="1.2.1")
    ours = tools.load(tmp_path / "out" / "rank0.safetensors")
    for name in ("kv_cache_scaling_factor", "kv_cache_rcp_scaling_factor"):
        assert ours[f"transformer.layers.2.attention.{name}"][1].tolist() == [1.0]
    assert any("written as 1" in warning for warning in done.warnings)


def test_rowwise_with_an_fp8_cache_warns_of_draft_target(make_source, convert):
    done = convert(make_source()[0], quantization="fp8_rowwise", kv_cache_dtype="fp8")
    assert any("draft-target" in warning for warning in done.warnings)


@pytest.mark.parametrize(
    ("version", "dialect", "basis"),
    [
        ("0.17.0", "0.17", "recorded"),
        ("0.18.2", "0.17", "follows 0.17.0"),
        ("0.20.0", "0.17", "follows 0.17.0"),
        ("1.2.1", "1.3.0rc3", "follows 1.3.0rc3"),
        ("1.3.0rc3", "1.3.0rc3", "recorded"),
    ],
)
def test_versions_follow_a_recorded_one_and_the_manifest_says_which(
    make_source, convert, tmp_path, version, dialect, basis
):
    convert(make_source()[0], tensorrt_llm=version)
    written = json.loads((tmp_path / "out" / "manifest.json").read_text())["dialect"]
    assert written["dialect"] == dialect
    assert written["basis"].startswith(basis)


def test_old_exports_frequencies_are_ignored(make_source, convert):
    def change(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", np.ones(4, dtype=np.float32))

    convert(make_source(change)[0])


def test_transformers_5_spells_rotary_settings_otherwise(make_source, convert, tools, tmp_path):
    scaling = {"rope_type": "linear", "factor": 4.0}
    new, _ = make_source(folder="new", rope_theta=None, rope_parameters={**scaling, "rope_theta": 10000.0})
    old, _ = make_source(folder="old", rope_scaling=scaling)
    for model in (new, old):
        convert(model, output=tmp_path / f"{model.name}-out")
    texts = [(tmp_path / f"{name}-out" / "config.json").read_text() for name in ("new", "old")]
    assert texts[0] == texts[1]
    frequencies = tools.load(tmp_path / "new-out" / "rank0.safetensors")["rotary_inv_freq"][1]
    assert frequencies[0] == 0.25


def test_nan_and_infinite_weights_are_named(make_source, convert, tmp_path):
    def change(tensors):
        for name, value in (("model.layers.1.mlp.up_proj.weight", np.nan), ("model.norm.weight", np.inf)):
            weight = bf16_to_float32(tensors[name][1])
            weight.flat[3] = value
            tensors[name] = ("BF16", bf16_bits(weight))

    model, _ = make_source(change)
    for options in ({"tp": 2}, {"quantization": "fp8_rowwise"}):
        output = tmp_path / f"out-{len(options)}-{'tp' in options}"
        named = " ".join(convert(model, output=output, **options).warnings)
        assert "'model.layers.1.mlp.up_proj.weight' has NaN" in named
        assert "'model.norm.weight' has NaN" in named
        assert named == " ".join(convert(model, output=output, **options).warnings)  # also when there is nothing to do


def test_overflow_in_a_cast_is_named(make_source, convert):
    def change(tensors):
        tensors["model.norm.weight"] = ("BF16", bf16_bits(np.full(32, 1e6, dtype=np.float32)))

    named = " ".join(convert(make_source(change)[0], dtype="float16").warnings)
    assert "'model.norm.weight' has values beyond F16" in named
