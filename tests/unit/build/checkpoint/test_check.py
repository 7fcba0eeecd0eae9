import json
import os

import pytest

from trt_spec.build.checkpoint.check import check_checkpoint
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
    with pytest.raises(SpecError, match="not that of a TensorRT-LLM checkpoint"):
        check(model)
    with pytest.raises(SpecError, match=r"no config\.json"):
        check(tmp_path)
