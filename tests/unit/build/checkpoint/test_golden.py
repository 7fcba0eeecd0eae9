"""Every recorded conversion of NVIDIA's converters, byte for byte. The data's origin: tests/golden/README.md."""

import json
from pathlib import Path

import pytest

from trt_spec.build.checkpoint.check import check_checkpoint
from trt_spec.build.checkpoint.options import MedusaOptions

GOLDEN = Path(__file__).parents[3] / "golden" / "checkpoints"
CASES = [
    (case, version, expected)
    for case in json.loads((GOLDEN / "cases.json").read_text())
    for version, expected in case["expect"].items()
    if not expected.startswith("refused")
]
MEDUSA_CASES = [
    (case, version, expected)
    for case in json.loads((GOLDEN / "cases_medusa.json").read_text())
    for version, expected in case["expect"].items()
]
QUANTIZATIONS = {None: "none", "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8_rowwise"}


def options(case, version):
    quantization = case["quantization"] or {}
    return {
        "tp": case["tp"],
        "pp": case["pp"],
        "dtype": case["dtype"],
        "quantization": QUANTIZATIONS[quantization.get("quant_algo")],
        "kv_cache_dtype": "fp8" if quantization.get("kv_cache_quant_algo") == "FP8" else "auto",
        "meta_recipe": bool(quantization.get("use_meta_recipe")),
        "embedding_axis": case["options"].get("embedding_sharding_dim"),
        "tensorrt_llm": version,
    }


def test_the_recorded_cases_are_all_here():
    assert len(CASES) == 54
    assert len(MEDUSA_CASES) == 8
    assert len(list(GOLDEN.glob("trtllm-*/*/rank*.safetensors"))) == 128


@pytest.mark.parametrize(
    ("case", "version", "expected"), CASES, ids=[f"{case['id']}-{version}" for case, version, _ in CASES]
)
def test_rank_files_and_config_are_those_of_nvidias_converter(case, version, expected, convert, tmp_path):
    convert(GOLDEN / case["hf"], **options(case, version))
    check_equal(tmp_path / "out", GOLDEN / expected)


@pytest.mark.parametrize(
    ("case", "version", "expected"), MEDUSA_CASES, ids=[f"{case['id']}-{version}" for case, version, _ in MEDUSA_CASES]
)
def test_medusa_checkpoints_are_those_of_nvidias_converter(case, version, expected, convert, tmp_path):
    medusa = MedusaOptions(GOLDEN / case["medusa"], case["max_medusa_token_len"])
    split = {"tp": case["tp"], "pp": case["pp"]}
    convert(GOLDEN / case["hf"], **split, dtype=case["dtype"], tensorrt_llm=version, medusa=medusa)
    check_equal(tmp_path / "out", GOLDEN / expected)


def check_equal(output, recorded):
    assert {path.name for path in output.iterdir()} == {path.name for path in recorded.iterdir()} | {"manifest.json"}
    assert json.loads((output / "config.json").read_text()) == json.loads((recorded / "config.json").read_text())
    for path in recorded.glob("rank*.safetensors"):
        # Whole files: names, types, shapes, order, and every byte, so NaNs cannot hide behind a comparison of numbers.
        assert (output / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    "folder", sorted(GOLDEN.glob("trtllm-*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_nvidias_own_checkpoints_pass_the_check(folder):
    checked = check_checkpoint(folder, lambda *_: None)
    assert checked.ranks == len(list(folder.glob("rank*.safetensors")))
    assert not checked.has_digests


def test_quantisation_is_recognised_from_the_sources_own_files(golden, convert, tmp_path):
    convert(golden / "hf" / "llama-modelopt-fp8", tp=2, tensorrt_llm="1.3.0rc3")
    for name in ("rank0.safetensors", "rank1.safetensors"):
        recorded = golden / "trtllm-1.3.0rc3" / "llama-modelopt-fp8-tp2pp1" / name
        assert (tmp_path / "out" / name).read_bytes() == recorded.read_bytes()
