"""Medusa heads in a conversion: what NVIDIA's recorded cases do not show, and what is refused."""

import json
import shutil

import numpy as np
import pytest

from trt_spec.build.checkpoint.check import check_checkpoint
from trt_spec.build.checkpoint.described import load_split
from trt_spec.build.checkpoint.options import MedusaOptions
from trt_spec.build.source.medusa_heads import HEADS_NAME, load_head_files
from trt_spec.errors import SpecError, VerifyFailed
from trt_spec.plan.medusa_heads import MedusaHeads


@pytest.fixture
def heads(golden, tmp_path):
    """A copy of three recorded heads, to bend."""
    return shutil.copytree(golden / "hf" / "llama-medusa", tmp_path / "heads")


def rewrite(tools, folder, change):
    tensors = tools.load(folder / HEADS_NAME)
    change(tensors)
    tools.write(folder / HEADS_NAME, tensors)


def test_a_checkpoint_tells_its_heads_again(golden):
    split = load_split(golden / "trtllm-1.3.0rc3" / "llama-medusa2-tp2pp1" / "config.json")
    assert split.medusa == MedusaHeads(4, 2)
    assert split.facts.head_dim == 8


def test_the_check_misses_a_head(golden, tmp_path, tools):
    folder = shutil.copytree(golden / "trtllm-0.17.0" / "llama-medusa-tp1pp1", tmp_path / "ckpt")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_medusa_heads": 4}))
    with pytest.raises(VerifyFailed, match=r"lacks tensor 'medusa_heads.3.lm_head.weight'"):
        check_checkpoint(folder, lambda *_: None)


def test_heads_are_cast_to_the_engines_type(golden, heads, convert, tmp_path, tools):
    convert(golden / "hf" / "llama", dtype="bfloat16", medusa=MedusaOptions(heads, 7))
    dtype, bits = tools.load(tmp_path / "out" / "rank0.safetensors")["medusa_heads.1.lm_head.weight"]
    _, stored = tools.load(heads / HEADS_NAME)["1.1.weight"]
    assert dtype == "BF16"
    assert np.array_equal(bits, tools.encode("BF16", stored))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["max_draft_len"] == 7


def test_another_name_of_the_file_will_do(golden, heads, convert, tmp_path):
    (heads / HEADS_NAME).rename(heads / "model.safetensors")
    convert(golden / "hf" / "llama", dtype="float16", medusa=MedusaOptions(heads, 15))
    recorded = golden / "trtllm-1.3.0rc3" / "llama-medusa-tp1pp1" / "rank0.safetensors"
    assert (tmp_path / "out" / "rank0.safetensors").read_bytes() == recorded.read_bytes()


def test_a_second_run_does_nothing_and_other_heads_are_another_conversion(golden, heads, convert, tools):
    convert(golden / "hf" / "llama", medusa=MedusaOptions(heads, 15))
    assert convert(golden / "hf" / "llama", medusa=MedusaOptions(heads, 15)).reused == ("rank0.safetensors",)
    with pytest.raises(SpecError, match="is not empty"):
        convert(golden / "hf" / "llama", medusa=MedusaOptions(heads, 16))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop("1.0.linear.bias"), "1.0.linear.bias is missing"),
        (lambda tensors: tensors.update({"0.1.weight": ("F16", np.zeros((90, 32), "<f2"))}), r"\[90, 32\], the target"),
        (lambda tensors: tensors.update({"0.0.linear.weight": ("F16", np.zeros((16, 16), "<f2"))}), "hidden size 32"),
        (lambda tensors: tensors.update({"0.0.linear.bias": ("F32", np.zeros(32, "<f4"))}), "one data type"),
    ],
)
def test_heads_that_do_not_fit_leave_nothing_behind(golden, heads, convert, tools, tmp_path, change, words):
    rewrite(tools, heads, change)
    with pytest.raises(SpecError, match=words):
        convert(golden / "hf" / "llama", medusa=MedusaOptions(heads, 15))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pp": 2}, "pipeline_parallel 2"),
        ({"quantization": "fp8_rowwise"}, "not written for Medusa"),
    ],
)
def test_what_no_medusa_checkpoint_can_say(golden, heads, convert, options, words):
    with pytest.raises(SpecError, match=words):
        convert(golden / "hf" / "llama", medusa=MedusaOptions(heads, 15), **options)


def test_models_with_biases_or_odd_vocabularies_or_of_another_family(golden, heads, make_source, convert):
    with pytest.raises(SpecError, match="biases"):
        source, _ = make_source(vocab_size=96, attention_bias=True)
        convert(source, medusa=MedusaOptions(heads, 15))
    with pytest.raises(SpecError, match="are not written"):
        convert(golden / "hf" / "qwen2", medusa=MedusaOptions(heads, 15))


# -- files of heads ----------------------------------------------------------------------------------------------


def test_pickled_heads_are_refused_with_the_way_to_convert_them(heads, tmp_path):
    (heads / HEADS_NAME).unlink()
    (heads / "medusa_lm_head.pt").write_bytes(b"\x80\x04 anything")
    with pytest.raises(SpecError, match="are pickled") as told:
        load_head_files(str(heads), cache_dir=tmp_path)
    assert "weights_only=True" in told.value.remedy and "save_file" in told.value.remedy


def test_folders_that_hold_no_heads(heads, tmp_path):
    with pytest.raises(SpecError, match="does not exist"):
        load_head_files(str(tmp_path / "nowhere"), cache_dir=tmp_path)
    shutil.copy(heads / HEADS_NAME, heads / "a.safetensors")
    shutil.move(heads / HEADS_NAME, heads / "b.safetensors")
    with pytest.raises(SpecError, match="2 safetensors files"):
        load_head_files(str(heads), cache_dir=tmp_path)
    for name in ("a", "b"):
        (heads / f"{name}.safetensors").unlink()
    assert load_head_files(str(heads), cache_dir=tmp_path).tensors is None  # to plan with
    (heads / "config.json").unlink()
    with pytest.raises(SpecError, match=f"has no {HEADS_NAME}"):
        load_head_files(str(heads), cache_dir=tmp_path)


# -- heads inside a ModelOpt checkpoint --------------------------------------------------------------------------


def with_fp8_heads(golden, tmp_path, tools):
    """The recorded FP8 model of ModelOpt with two heads of its own, as its export names them."""
    folder = shutil.copytree(golden / "hf" / "llama-modelopt-fp8", tmp_path / "modelopt")
    rng = np.random.default_rng(3)
    tensors = tools.load(folder / "model.safetensors")
    for head in range(2):
        for module, shape in ((f"{head}.0.linear", (32, 32)), (f"{head}.1", (96, 32))):
            tensors[f"medusa_heads.{module}.weight"] = ("F8_E4M3", rng.integers(0, 0x7E, shape).astype("u1"))
            for scale, value in (("weight_scale", 0.25 + head), ("input_scale", 0.5)):
                tensors[f"medusa_heads.{module}.{scale}"] = ("F32", np.array(value, "<f4"))
        tensors[f"medusa_heads.{head}.0.linear.bias"] = ("F16", rng.normal(0, 1, 32).astype("<f2"))
    tools.write(folder / "model.safetensors", tensors)
    config = json.loads((folder / "config.json").read_text())
    config["medusa"] = {"num_medusa_heads": 2, "num_medusa_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, tensors


def test_fp8_heads_keep_numbers_and_scales(golden, convert, tmp_path, tools):
    """As load_medusa_hf reads: the FP8 numbers in the engine's type, both scales in float32."""
    folder, tensors = with_fp8_heads(golden, tmp_path, tools)
    done = convert(folder, tp=2, dtype="float16", medusa=MedusaOptions(None, 15), tensorrt_llm="1.3.0rc3")
    assert any("FP8 heads" in warning for warning in done.warnings)
    found = tools.load(tmp_path / "out" / "rank1.safetensors")
    _, codes = tensors["medusa_heads.1.1.weight"]
    values = np.array(
        [
            (code & 7) / 8 * 2.0**-6 if code < 8 else (1 + (code & 7) / 8) * 2.0 ** ((code >> 3) - 7)
            for code in map(int, codes[48:].reshape(-1))
        ],
        np.float32,
    ).reshape(48, 32)
    assert np.array_equal(found["medusa_heads.1.lm_head.weight"][1], values.astype("<f2"))
    assert found["medusa_heads.1.lm_head.weights_scaling_factor"][1].tolist() == [1.25]
    assert found["medusa_heads.1.medusa_layers.0.linear.activation_scaling_factor"][1].tolist() == [0.5]
    # The base is what NVIDIA's converter makes of it without heads.
    plain = tools.load(golden / "trtllm-1.3.0rc3" / "llama-modelopt-fp8-tp2pp1" / "rank1.safetensors")
    rest = {name: pair for name, pair in found.items() if not name.startswith("medusa_heads.")}
    assert rest.keys() == plain.keys()
    fp8 = [name for name, (dtype, _) in plain.items() if dtype == "F8_E4M3"]
    assert fp8 and all(np.array_equal(rest[name][1], plain[name][1]) for name in fp8)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization"]["quant_algo"] == "FP8"
    assert (config["num_medusa_heads"], config["num_medusa_layers"]) == (2, 1)


def test_heads_inside_are_not_dropped_in_silence(golden, convert, tmp_path, tools):
    folder, _ = with_fp8_heads(golden, tmp_path, tools)
    with pytest.raises(SpecError, match="holds Medusa heads"):
        convert(folder)
