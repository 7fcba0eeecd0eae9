"""The committed JSON Schema: current, valid, and in agreement with the models."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import get_args

import jsonschema
import pytest
import yaml

from trt_spec.spec.model import Gpu, Spec
from trt_spec.spec.presets import load_presets
from trt_spec.spec.schema import SCHEMA_PATH, render_schema


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_committed_schema_is_the_generated_one():
    assert SCHEMA_PATH.read_text(encoding="utf-8") == render_schema(), "run: python -m trt_spec.spec.schema --write"


def test_head(validator):
    assert validator.schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert validator.schema["title"] == "trtspec spec"
    assert validator.schema["required"] == ["name", "backend", "target"]


def test_every_field_is_described(validator):
    sections = [validator.schema, *validator.schema["$defs"].values()]
    undescribed = [
        key for section in sections for key, field in section["properties"].items() if "description" not in field
    ]
    assert undescribed == []
    assert [section["title"] for section in sections if not section.get("description")] == []


@pytest.mark.parametrize("preset", load_presets(), ids=lambda preset: preset.name)
def test_presets_are_valid(validator, preset):
    assert list(validator.iter_errors(yaml.safe_load(preset.text))) == []


def test_sound_and_resolved_specs_are_valid(validator, sound_values):
    assert list(validator.iter_errors(sound_values)) == []
    assert list(validator.iter_errors(Spec.model_validate(sound_values).model_dump(mode="json"))) == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("target", "quantizaton", "fp8"),
        ("target", "quantization", "fp9"),
        ("target", "gpus", []),
        ("limits", "max_batch_size", 0),
        ("serve", "http_port", 65536),
        ("speculation", "max_draft_len", "4"),
        ("build_flags", "traget", {}),
        ("build_flags", "target", {"--gemm_plugin": "fp8"}),
    ],
)
def test_what_the_models_refuse_the_schema_refuses(validator, onnx_values, section, key, value):
    onnx_values.setdefault(section, {})[key] = value
    assert not validator.is_valid(onnx_values)


def test_choices_come_from_the_types(validator):
    assert tuple(validator.schema["$defs"]["Hardware"]["properties"]["gpu"]["enum"]) == get_args(Gpu)


def test_reading_a_spec_imports_nothing_heavy():
    heavy = "onnx onnxruntime numpy tritonclient grpc gguf tokenizers safetensors torch transformers rich"
    code = (
        "import sys, trt_spec.spec.load, trt_spec.spec.presets, trt_spec.cli.init;"
        f"print([name for name in {heavy.split()} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
