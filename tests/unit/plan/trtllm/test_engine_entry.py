"""What the manifest records of a planned engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from trt_spec.plan.engine_entry import resolve_engine_entry
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.manifest import EngineEntry
from trt_spec.plan.plan import PlanOptions, make_plan
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec
from trt_spec.spec.presets import load_preset


def test_both_engines_of_a_preset() -> None:
    spec = Spec.model_validate(yaml.safe_load(load_preset("llama-3.1-405b-h200x4").text))
    files: dict[Any, Any] = {role: load_known_model(model.model) for role, model in spec.models().items()}
    plan = make_plan(spec, files, PlanOptions(Workspace(Path("/w"))))
    assert plan.engine is not None
    pools = plan.engine.memory.pools
    assert resolve_engine_entry(plan, "target", "f", None) == EngineEntry(
        fingerprint="f",
        source="nvidia/Llama-3.1-405B-Instruct-FP8",
        vocab_size=128256,
        max_seq_len=8192 + 2048 + 2 * 10,  # the builder adds the draft once more
        max_draft_len=10,
        kv_cache_tokens=pools["target"].max_tokens,
        logits_dtype="float32",
    )
    draft = resolve_engine_entry(plan, "draft", "f", None)
    assert (draft.kv_cache_tokens, draft.max_draft_len) == (pools["draft"].max_tokens, 0)
