import json
import os

import pytest

from trt_spec.build.checkpoint.check import check_checkpoint
from trt_spec.build.checkpoint.described import UnreadCheckpoint
from trt_spec.errors import SpecError, VerifyFailed


@pytest.fixture
def checkpoint(make_source, convert, tmp_path):
    convert(make_source()[0], tp=2, kv_cache_dtype="fp8", quantization="fp8_rowwise")
    return tmp_path / "out"


def check(folder):
    return check_checkpoint(folder, lambda *_: None)


def test_a_finished_checkpoint_is_whole(checkpoint):
    checked = check(checkpoint)
    assert (checked.ranks, checked.has_digests) == (2, True)
    assert checked.total_bytes == sum(path.stat().st_size for path in checkpoint.glob("rank*"))


def test_one_flipped_bit_is_found(checkpoint):
    path = checkpoint / "rank1.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    with pytest.raises(VerifyFailed, match=r"rank1.safetensors is not the file that was written"):
        check(checkpoint)


def test_an_edited_config_is_found(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(VerifyFailed, match=r"config.json is not the file"):
        check(checkpoint)
    config["quantization"]["kv_cache_quant_algo"] = None
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(VerifyFailed, match=r"unknown tensor 'transformer.layers.0.attention.kv_cache"):
        check(checkpoint)


def test_ranks_that_are_missing_cut_or_too_many_are_found(checkpoint):
    (checkpoint / "rank2.safetensors").write_bytes((checkpoint / "rank1.safetensors").read_bytes())
    os.truncate(checkpoint / "rank1.safetensors", 9000)
    (checkpoint / "rank0.safetensors").unlink()
    with pytest.raises(VerifyFailed) as caught:
        check(checkpoint)
    for words in ("rank0.safetensors is missing", "truncated", "rank2.safetensors belongs to no rank of 2"):
        assert words in str(caught.value)


def test_a_folder_that_is_no_checkpoint_is_refused(make_source, tmp_path):
    model, _ = make_source()
    with pytest.raises(SpecError, match=r"a Hugging Face checkpoint.* `trtspec convert`"):
        check(model)
    with pytest.raises(SpecError, match=r"no config\.json"):
        check(tmp_path)


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("mapping", "tp_size", None, "mapping.tp_size is null, expected a whole number from 1 to 4096"),
        ("mapping", "pp_size", "x", 'mapping.pp_size is "x", expected'),
        ("mapping", "tp_size", [], "mapping.tp_size is [], expected"),
        ("mapping", "pp_size", 10**12, "mapping.pp_size is 1000000000000, expected"),
        ("mapping", "pp_size", 99, "no more stages than the"),
        ("mapping", "world_size", 7, "mapping.world_size is 7, tp_size, pp_size and cp_size make 2"),
        ("", "mapping", None, "mapping is null, expected an object"),
        ("", "vocab_size", "x", 'vocab_size is "x", expected'),
        ("", "vocab_size", 10**30, "vocab_size is 1" + "0" * 30),
        ("", "num_hidden_layers", "2", 'num_hidden_layers is "2", expected a whole number from 1 to 10000'),
        ("", "num_hidden_layers", 10**9, "num_hidden_layers is 1000000000, expected"),
        ("", "num_attention_heads", None, "num_attention_heads is null, expected"),
        ("", "num_key_value_heads", 0, "num_key_value_heads is 0, expected"),
        ("", "head_size", True, "head_size is true, expected"),
        ("", "dtype", "foo", 'dtype is "foo", expected "float32" or "float16" or "bfloat16"'),
        ("", "architecture", 5, "architecture is 5, expected a name"),
        ("", "embedding_sharding_dim", 7, "embedding_sharding_dim is 7, expected 0 or 1"),
        ("", "quantization", [], "quantization is [], expected an object"),
    ],
)
def test_values_that_no_checkpoint_can_have_are_named(checkpoint, section, key, value, expected):
    config = json.loads((checkpoint / "config.json").read_text())
    config["use_parallel_embedding"] = True
    (config[section] if section else config)[key] = value
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(VerifyFailed) as caught:
        check(checkpoint)
    assert expected in caught.value.found


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("architecture", "MedusaForCausalLM", "Medusa checkpoints of model_type null are not read in this version"),
        ("architecture", "FalconForCausalLM", "checkpoints of 'FalconForCausalLM' are not read"),
        ("quantization", {"quant_algo": "W4A16"}, 'checkpoints with quant_algo "W4A16" are not read'),
    ],
)
def test_checkpoints_of_other_kinds_are_not_called_faulty(checkpoint, key, value, says):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UnreadCheckpoint, match=says):
        check(checkpoint)


@pytest.mark.parametrize("name", ["config.json", "rank0.safetensors"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_said_and_not_waited_for(checkpoint, name, make):
    (checkpoint / name).unlink()
    make(checkpoint / name)
    with pytest.raises(VerifyFailed, match=f"{name} is no regular file"):
        check(checkpoint)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "manifest.json is not JSON"),
        ("[]", "manifest.json holds a JSON list"),
        ("{}", "does not list config.json and every rank"),
        ('{"files": {"config.json": 1, "rank0.safetensors": 1, "rank1.safetensors": 1}}', "a file of the folder"),
        (
            '{"files": {"config.json": {}, "rank0.safetensors": {}, "rank1.safetensors": {}, "../x": {}}}',
            "lists '../x', expected a file of the folder",
        ),
    ],
)
def test_a_manifest_that_is_none_is_a_fault(checkpoint, text, says):
    (checkpoint / "manifest.json").write_text(text)
    with pytest.raises(VerifyFailed) as caught:
        check(checkpoint)
    assert says in caught.value.found
