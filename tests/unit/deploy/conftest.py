"""A deployment of two empty engine folders and the tiny tokenizer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.plan.manifest import EngineEntry, Manifest
from trt_spec.spec.model import Spec

TOKENIZER = Path(__file__).parents[2] / "fixtures" / "tiny" / "tokenizer"


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    engines = tmp_path / "engines"
    (engines / "draft").mkdir(parents=True)
    shutil.copytree(TOKENIZER, engines / "target")
    (engines / "target" / "model.onnx").write_bytes(b"not copied into the repository")
    return Deployment(
        name="pair",
        id="0123",
        tensorrt_llm="1.2.1",
        target=EngineDeployment(str(engines / "target"), engines / "target", kv_cache_tokens=1232),
        draft=EngineDeployment(str(engines / "draft"), engines / "draft", kv_cache_tokens=1300),
        tokenizer_dir=engines / "target",
        max_draft_len=4,
        max_input_len=100,
        max_output_len=50,
        max_seq_len=154,
        max_batch_size=8,
        vocab_size=320,
        draft_vocab_size=312,
    )


GPU_SPEC: dict[str, Any] = {
    "name": "pair",
    "backend": "engine",
    "hardware": {"gpu": "H200", "gpus": 4},
    "target": {"model": "./target", "tensor_parallel": 2},
    "draft": {"model": "./draft"},
    "speculation": {"max_draft_len": 3},
    "limits": {"max_batch_size": 2, "max_input_len": 100, "max_output_len": 50},
}


@pytest.fixture
def gpu_manifest() -> Callable[..., Manifest]:
    """gpu_manifest(**sections) -> the manifest of a pair on GPUs; a section is merged into GPU_SPEC's, None removes it.

    ``entry`` changes what is recorded of both engines.
    """

    def make(entry: dict[str, Any] | None = None, **sections: Any) -> Manifest:
        values = {**GPU_SPEC}
        for key, section in sections.items():
            values[key] = {**values.get(key, {}), **section} if isinstance(section, dict) else section
        spec = Spec.model_validate({key: value for key, value in values.items() if value is not None})
        engines = {
            str(role): EngineEntry(
                **{
                    "fingerprint": f"f-{role}",
                    "source": model.model,
                    "vocab_size": 10,
                    "max_seq_len": 156,
                    "max_draft_len": 3,
                    "kv_cache_tokens": 640 if role == "target" else 704,
                    "logits_dtype": "float32",
                    **(entry or {}),
                }
            )
            for role, model in spec.models().items()
        }
        return Manifest(trtspec="0", spec=spec, engines=engines)

    return make
