"""Bad input: an error that names it, and nothing written."""

import json
import os
import shutil

import numpy as np
import pytest

from trt_spec.build.checkpoint import convert as convert_module
from trt_spec.errors import EnvironmentMissing, SpecError


@pytest.fixture
def refused(convert, tmp_path):
    """refused(model, **options) -> the error; nothing may be left beside the model."""

    def run(model, error=SpecError, **options):
        before = sorted(tmp_path.iterdir())
        with pytest.raises(error) as caught:
            convert(model, **options)
        assert sorted(tmp_path.iterdir()) == before
        assert caught.value.remedy
        return str(caught.value)

    return run


@pytest.fixture
def sharded(golden, tmp_path):
    """A copy of a recorded source in four shards."""
    shutil.copytree(golden / "hf" / "llama-sharded", tmp_path / "sharded")
    return tmp_path / "sharded"


def header_of(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_header(path, header, data):
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)


def test_b045_a_tied_head_is_made_from_the_embedding(make_source, convert, tools, tmp_path):
    model, source = make_source(tie_word_embeddings=True)
    assert "lm_head.weight" not in source
    convert(model, quantization="fp8_rowwise", tp=2)
    head = tools.load(tmp_path / "out" / "rank1.safetensors")["lm_head.weight"][1]
    assert np.array_equal(head, source["model.embed_tokens.weight"][1][20:])


def test_b046_an_untied_head_that_is_missing_is_refused(make_source, refused):
    def change(tensors):
        del tensors["lm_head.weight"]

    model, _ = make_source(change)
    text = refused(model)
    assert "tie_word_embeddings false, but lm_head.weight was not found in any shard" in text
    silent, _ = make_source(change, folder="silent", tie_word_embeddings=None)
    assert "does not set tie_word_embeddings, which is false for LlamaForCausalLM" in refused(silent)


def test_b047_a_missing_shard_is_named(sharded, refused):
    (sharded / "model-00003-of-00004.safetensors").rename(sharded / "model-00003-of-00004.safetensors.incomplete")
    assert "model-00003-of-00004.safetensors is missing" in refused(sharded)


def test_b047_a_truncated_shard_is_named(sharded, refused):
    shard = sharded / "model-00002-of-00004.safetensors"
    os.truncate(shard, shard.stat().st_size - 100)
    text = refused(sharded)
    assert "model-00002-of-00004.safetensors is truncated" in text


def test_b047_a_pointer_is_named(sharded, refused):
    shard = sharded / "model-00004-of-00004.safetensors"
    shard.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 6264\n")
    assert "model-00004-of-00004.safetensors is a git-lfs pointer" in refused(sharded)


def test_pickles_are_named(make_source, refused):
    model, _ = make_source()
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    assert "pickle weights only (pytorch_model.bin)" in refused(model)


def test_b049_only_indexed_files_are_read(sharded, golden, convert, tmp_path):
    shutil.copy(golden / "hf" / "llama" / "model.safetensors", sharded / "consolidated.safetensors")
    shutil.copy(golden / "hf" / "llama" / "model.safetensors", sharded / "model-00009-of-00009.safetensors")
    done = convert(sharded, tp=2, tensorrt_llm="1.3.0rc3")
    recorded = golden / "trtllm-1.3.0rc3" / "llama-sharded-tp2pp1" / "rank1.safetensors"
    assert (tmp_path / "out" / "rank1.safetensors").read_bytes() == recorded.read_bytes()
    assert any("model-00009-of-00009.safetensors" in warning for warning in done.warnings)
    assert not any("consolidated" in warning for warning in done.warnings)


def test_shards_without_an_index_are_refused(sharded, refused):
    (sharded / "model.safetensors.index.json").unlink()
    assert "neither model.safetensors nor model.safetensors.index.json" in refused(sharded)


def test_a_tensor_in_two_shards_is_refused(sharded, refused):
    first, second = (sharded / f"model-0000{number}-of-00004.safetensors" for number in (1, 2))
    header, data = header_of(first)
    shutil.copy(first, second)
    text = refused(sharded)
    assert next(name for name in header if name != "__metadata__")
    assert "is in both" in text
    assert data


def test_a_header_that_lies_about_offsets_is_refused(make_source, refused):
    model, _ = make_source()
    header, data = header_of(model / "model.safetensors")
    header["model.norm.weight"]["data_offsets"][1] += 2
    write_header(model / "model.safetensors", header, data)
    assert "'model.norm.weight'" in refused(model)


CHANGES = {
    "missing": (lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"), "up_proj.weight' is missing"),
    "extra": (
        lambda tensors: tensors.__setitem__("model.layers.7.mlp.up_proj.weight", tensors["model.norm.weight"]),
        "has tensor 'model.layers.7.mlp.up_proj.weight'",
    ),
    "bias that config.json does not know": (
        lambda tensors: tensors.__setitem__("model.layers.0.self_attn.q_proj.bias", tensors["model.norm.weight"]),
        "q_proj.bias'",
    ),
    "shape": (
        lambda tensors: tensors.__setitem__("model.norm.weight", ("BF16", np.zeros(31, dtype=np.uint16))),
        r"'model.norm.weight' has shape \[31\], expected \[32\]",
    ),
    "dtype": (
        lambda tensors: tensors.__setitem__("model.norm.weight", ("F8_E4M3", np.zeros(32, dtype=np.uint8))),
        "'model.norm.weight' is F8_E4M3, expected BF16 or F16 or F32",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_tensor_is_accounted_for(make_source, convert, tmp_path, change):
    edit, words = CHANGES[change]
    model, _ = make_source(edit)
    with pytest.raises(SpecError, match=words):
        convert(model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_sizes_that_do_not_divide_list_those_that_do(make_source, refused):
    model, _ = make_source()
    assert "Sizes that do: 1, 2, 4." in refused(model, tp=3)
    assert "--pp 4: the model has 3 layers" in refused(model, pp=4)
    assert "would drop the last 1 of them" in refused(model, pp=2, tensorrt_llm="0.17.0")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantization": "int8"}, "--use_weight_only"),
        ({"quantization": "int4"}, "--use_weight_only"),
        ({"quantization": "fp8"}, "quantize.py"),
        ({"meta_recipe": True}, "Add --quantization fp8_rowwise"),
        ({"tensorrt_llm": "0.16.0"}, "too old"),
        ({"tensorrt_llm": "1.3.0rc21"}, "backend was removed"),
        ({"tensorrt_llm": "1.4.0"}, "backend was removed"),
        ({"tensorrt_llm": "new"}, "no version of TensorRT-LLM"),
    ],
)
def test_refusals_name_the_way_that_works(make_source, refused, options, words):
    assert words in refused(make_source()[0], **options)


def test_stored_quantisation_is_not_changed(golden, refused):
    for asked in ("none", "fp8_rowwise"):
        assert "stored in FP8 already" in refused(golden / "hf" / "llama-modelopt-fp8", quantization=asked)


def test_other_quantisations_are_refused_by_name(make_source, refused):
    model, _ = make_source(quantization={"quant_algo": "W4A16_AWQ"})
    assert "stored in W4A16_AWQ" in refused(model)
    gptq, _ = make_source(folder="gptq", quantization_config={"quant_method": "gptq"})
    assert "stored in GPTQ" in refused(gptq)


def test_a_scale_that_is_no_positive_number_is_refused(golden, convert, tools, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(golden / "hf" / "llama-modelopt-fp8", model)
    tensors = tools.load(model / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight_scale"] = ("F32", np.array(np.nan, dtype=np.float32))
    tools.write(model / "model.safetensors", tensors)
    with pytest.raises(SpecError, match=r"up_proj\.weight_scale"):
        convert(model)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_unknown_architecture_lists_the_known(make_source, refused):
    model, _ = make_source()
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "architectures": ["GemmaForCausalLM"]}))
    text = refused(model)
    assert "GemmaForCausalLM" in text
    assert "LlamaForCausalLM, Qwen2ForCausalLM" in text


def test_the_output_must_be_new_or_empty(make_source, convert, refused, tmp_path):
    model, _ = make_source()
    (tmp_path / "file").write_text("")
    assert "expected a folder" in refused(model, output=tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    assert "is not empty" in refused(model, output=tmp_path / "full")
    assert "is not empty" in refused(model, output=model)
    assert (tmp_path / "full" / "note").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    convert(model, output=tmp_path / "empty")
    assert "is not empty" in refused(model, output=tmp_path / "empty", tp=2)


def test_too_little_space_is_found_before_writing(make_source, refused, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(convert_module.shutil, "disk_usage", lambda _: usage)
    text = refused(make_source()[0], error=EnvironmentMissing)
    assert "needs 0.00 GB, 0.00 GB are free" in text
