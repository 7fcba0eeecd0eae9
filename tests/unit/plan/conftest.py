"""Specs and models as plain values, for tests of the plan to bend."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.model_files import ModelFiles, TensorInfo
from trt_spec.spec.model import Spec

SMALL_PAIR = {
    "name": "pair",
    "backend": "engine",
    "hardware": {"gpu": "H200", "gpus": 4},
    "target": {"model": "owner/big"},
    "draft": {"model": "owner/small"},
    "limits": {"max_input_len": 1024, "max_output_len": 512},
}
SMALL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 96,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "eos_token_id": 2,
}


@pytest.fixture(scope="session")
def make_spec():
    """make_spec(target={...}, speculation={...}, ...) -> a sound engine spec with these sections changed."""

    def make(**sections: Any) -> Spec:
        values = copy.deepcopy(SMALL_PAIR)
        for name, section in sections.items():
            is_merged = isinstance(section, Mapping) and name != "build_flags"
            values[name] = {**values.get(name, {}), **section} if is_merged else section
        return Spec.model_validate(values)

    return make


@pytest.fixture(scope="session")
def make_files():
    """make_files(tokens={id: token}, tensors={name: shape}, **config) -> files of a model; tokens "t0" to "t95"."""

    def make(
        reference: str = "owner/model",
        tokens: Mapping[int, str] | None = None,
        merges: list[Any] | None = None,
        added: list[dict[str, Any]] | None = None,
        tokenizer_config: Mapping[str, Any] | None = None,
        generation_config: Mapping[str, Any] | None = None,
        tensors: Mapping[str, tuple[int, ...]] | None = None,
        **config: Any,
    ) -> ModelFiles:
        tokens = {i: f"t{i}" for i in range(96)} if tokens is None else tokens
        model = {"type": "BPE", "vocab": {token: i for i, token in tokens.items()}, "merges": merges or []}
        return ModelFiles(
            reference=reference,
            origin="test",
            config={**SMALL_CONFIG, **config},
            generation_config=generation_config or {},
            tokenizer={"model": model, "added_tokens": added or []},
            tokenizer_config=tokenizer_config or {},
            tensors=None if tensors is None else {n: TensorInfo("BF16", shape) for n, shape in tensors.items()},
        )

    return make


@pytest.fixture(scope="session")
def known():
    """known(reference) -> the built-in files of a well-known model."""

    def find(reference: str) -> ModelFiles:
        files = load_known_model(reference)
        assert files is not None
        return files

    return find


@pytest.fixture(scope="session")
def codes():
    """codes(findings) -> {code: severity}."""
    return lambda findings: {finding.code: finding.severity for finding in findings}
