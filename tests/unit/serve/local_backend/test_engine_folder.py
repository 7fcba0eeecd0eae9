"""What an engine folder says of itself, and which ones are refused."""

import json
import shutil

import pytest

from trt_spec.serve.local_backend.engine_folder import EngineLimits, load_limits, plan_rows

LIMITS = EngineLimits(
    vocab_size=320, layers=2, kv_heads=2, head_size=8, max_batch_size=4, max_seq_len=100, max_draft_len=8
)


@pytest.mark.parametrize("found", [None, 1, 99])
def test_an_engine_of_another_version_is_refused_by_name(build_tiny_engine, tmp_path, found):
    folder = shutil.copytree(build_tiny_engine("llama-gqa"), tmp_path / "engine")
    config = json.loads((folder / "config.json").read_text())
    config["build_config"].pop("engine_format")
    if found is not None:
        config["build_config"]["engine_format"] = found
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=rf"engine is an engine of format {found or 1}.*Run trtspec build again"):
        load_limits(folder)


@pytest.mark.parametrize("name", ["config.json", "model.onnx", "model.onnx.data"])
def test_a_missing_file_is_named(build_tiny_engine, tmp_path, name):
    folder = shutil.copytree(build_tiny_engine("llama-gqa"), tmp_path / "engine")
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} missing"):
        load_limits(folder)


@pytest.mark.parametrize(
    ("kv_tokens", "rows", "row_tokens"),
    [(None, 4, 100), (400, 4, 100), (10_000, 4, 100), (399, 3, 100), (100, 1, 100), (99, 1, 99), (2, 1, 2)],
)
def test_rows_stay_within_the_budget(kv_tokens, rows, row_tokens):
    assert plan_rows(LIMITS, kv_tokens) == (rows, row_tokens)
    assert kv_tokens is None or rows * row_tokens <= kv_tokens
