"""The models: defaults, strictness, and that a spec survives JSON and YAML unchanged."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trt_spec.spec.load import load_spec
from trt_spec.spec.model import Draft, Limits, Model, Serve, Spec, Speculation


def test_defaults_are_safe_ones(onnx_values):
    spec = Spec.model_validate(onnx_values)
    assert spec.tensorrt_llm == "1.2.1"
    assert spec.speculation == Speculation(mode="draft_target", max_draft_len=4, accept="tokens", adaptive=True)
    assert spec.serve == Serve(host="127.0.0.1", http_port=8000, grpc_port=8001, metrics_port=8002)
    assert spec.limits == Limits()
    assert spec.build_flags == {}
    assert (spec.target.dtype, spec.target.quantization, spec.target.tensor_parallel) == ("auto", "none", 1)


def test_models_by_role(onnx_values):
    spec = Spec.model_validate(onnx_values)
    assert list(spec.models()) == ["target", "draft"]
    alone = Spec.model_validate({**onnx_values, "draft": None, "speculation": {"mode": "none"}})
    assert alone.models() == {"target": alone.target}


def test_frozen(onnx_values):
    spec = Spec.model_validate(onnx_values)
    with pytest.raises(ValidationError, match="frozen"):
        spec.name = "other"
    with pytest.raises(ValidationError, match="frozen"):
        spec.target.dtype = "float16"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("limits", "max_batch_size", "8"),
        ("limits", "max_batch_size", True),
        ("limits", "max_batch_size", 8.0),
        ("limits", "max_input_len", 0),
        ("limits", "max_output_len", -1),
        ("speculation", "max_draft_len", 0),
        ("speculation", "max_draft_len", 65),
        ("speculation", "adaptive", "yes"),
        ("serve", "http_port", 0),
        ("serve", "http_port", 65536),
        ("serve", "host", "not a host"),
        ("target", "gpus", []),
        ("target", "gpus", "0"),
        ("target", "tensor_parallel", 0),
        ("target", "revision", ""),
        ("target", "model", ""),
    ],
)
def test_single_values_out_of_type_or_range(onnx_values, section, key, value):
    onnx_values.setdefault(section, {})[key] = value
    with pytest.raises(ValidationError) as caught:
        Spec.model_validate(onnx_values)
    assert {error["loc"] for error in caught.value.errors()} == {(section, key)}


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-rf", "a/b", "a b", "a\n", "é", "x" * 64])
def test_names_that_are_no_file_names(onnx_values, name):
    with pytest.raises(ValidationError, match="name"):
        Spec.model_validate({**onnx_values, "name": name})


_HUB_IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}/[A-Za-z0-9._-]{1,10}", fullmatch=True)
_FLAG_VALUES = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=10),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
)
_FLAGS = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), _FLAG_VALUES, max_size=3)


@st.composite
def _models(draw, backend, max_gpus, kind=Model):
    quantizations = {"engine": ["none", "fp8", "fp8_rowwise"], "onnx": ["none", "int8", "int4"], "llmapi": ["none"]}
    quantization = draw(st.sampled_from(quantizations[backend]))
    parallel = 1 if backend == "onnx" else draw(st.integers(1, max_gpus))
    order = draw(st.permutations(range(max_gpus)))
    return kind(
        model=draw(_HUB_IDS),
        revision=draw(st.none() | st.from_regex(r"[a-f0-9]{40}", fullmatch=True)),
        dtype="float32" if backend == "onnx" else draw(st.sampled_from(["auto", "bfloat16", "float16"])),
        quantization=quantization,
        kv_cache_dtype="fp8" if quantization == "fp8" and draw(st.booleans()) else "auto",
        tensor_parallel=parallel,
        gpus=draw(st.none() | st.just(tuple(order[:parallel]))) if backend == "engine" else None,
    )


@st.composite
def specs(draw):
    backend = draw(st.sampled_from(["engine", "onnx", "llmapi"]))
    max_gpus = draw(st.integers(1, 8))
    mode = draw(st.sampled_from(["draft_target", "none"]))
    target = draw(_models(backend, max_gpus))
    draft = draw(_models(backend, max_gpus, Draft)) if mode == "draft_target" else None
    if backend == "onnx" and draft is not None and draw(st.booleans()):
        layers = tuple(sorted(draw(st.sets(st.integers(0, 100), min_size=1))))
        shrunk = {"layers": layers, "quantization": target.quantization, "revision": None}
        draft = draft.model_copy(update={"model": "self", **shrunk})
    if backend == "llmapi" and draft is not None:
        draft = draft.model_copy(
            update={"tensor_parallel": target.tensor_parallel, "dtype": target.dtype, "revision": None}
        )
    ports = draw(st.lists(st.integers(1, 65535), min_size=3, max_size=3, unique=True))
    flags = {"target": draw(_FLAGS)} if backend == "engine" else {}
    return Spec.model_validate(
        {
            "name": draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)),
            "backend": backend,
            "tensorrt_llm": draw(st.sampled_from(["1.2.1"] if backend == "llmapi" else ["0.17.0", "0.18.2", "1.2.1"])),
            "hardware": None if backend == "onnx" else {"gpu": "H200", "gpus": max_gpus},
            "target": target,
            "draft": draft,
            "speculation": {"mode": mode, "max_draft_len": draw(st.integers(1, 64)), "adaptive": draw(st.booleans())},
            "limits": {"max_batch_size": draw(st.integers(1, 4096)), "max_input_len": draw(st.integers(1, 2**24))},
            "build_flags": flags,
            "serve": dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True)),
        }
    )


@given(specs())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_round_trip_through_json_and_through_a_file(spec):
    assert Spec.model_validate(json.loads(json.dumps(spec.model_dump(mode="json")))) == spec
    assert Spec.model_validate_json(spec.model_dump_json()) == spec
    assert Spec.model_validate_json(spec.model_dump_json()).model_dump_json() == spec.model_dump_json()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "spec.json")
        file.write_text(spec.model_dump_json(), encoding="utf-8")
        assert load_spec(file) == spec
