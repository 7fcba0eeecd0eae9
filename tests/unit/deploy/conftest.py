"""A deployment of two empty engine folders and the tiny tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trt_spec.deploy.deployment import Deployment

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
        target_engine=engines / "target",
        draft_engine=engines / "draft",
        tokenizer_dir=engines / "target",
        max_draft_len=4,
        max_input_len=100,
        max_output_len=50,
        max_seq_len=154,
        max_batch_size=8,
        kv_cache_tokens=1232,
    )
