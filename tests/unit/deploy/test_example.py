"""triton_repo/ of the checkout is what its preset's plan gives."""

from __future__ import annotations

import json

import pytest

from trt_spec.deploy.example import EXAMPLE, render_example
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.pbtxt import parse_pbtxt

RENEW = "run: python -m trt_spec.deploy.example --write"


@pytest.fixture(scope="module")
def rendered() -> dict[str, bytes]:
    return render_example()


def test_triton_repo_is_current(rendered: dict[str, bytes]) -> None:
    assert EXAMPLE.list_stale(rendered) == [], RENEW
    assert (EXAMPLE.path / "README.md").is_file()


def test_it_is_the_405b_pair_in_a_container(rendered: dict[str, bytes]) -> None:
    target, draft = (
        parse_pbtxt(rendered[f"{model}/config.pbtxt"].decode()) for model in ("tensorrt_llm", "tensorrt_llm_draft")
    )
    assert target.parameters["gpt_model_path"] == "/models/engines/target"
    assert target.parameters["gpu_device_ids"] == "0,1,2,3"
    assert draft.parameters["gpu_device_ids"] == "0"
    assert int(target.parameters["max_tokens_in_paged_kv_cache"]) >= 10_260  # one sequence at its longest
    assert json.loads(rendered[MARKER_FILE])["tensorrt_llm"] == "1.2.1"
    assert not [name for name in rendered if "/tokenizer/" in name]
