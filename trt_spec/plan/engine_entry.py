"""What the manifest says of a TensorRT engine: what the plan decided of it, and what it was built with."""

from __future__ import annotations

from trt_spec.plan.manifest import BuiltWith, EngineEntry
from trt_spec.plan.plan import Plan
from trt_spec.plan.trtllm_argv import LOGITS_DTYPE
from trt_spec.spec.model import Role


def resolve_engine_entry(plan: Plan, role: Role, fingerprint: str, built_with: BuiltWith | None) -> EngineEntry:
    """The manifest's entry of one engine of a plan for backend engine; ``built_with`` None for one that is not built.

    ``logits_dtype`` is what every engine is built with: ``build_flags`` may not change it.
    """
    assert plan.engine is not None
    limits = plan.engine.limits[role]
    medusa = plan.engine.medusa if role == "target" else None
    return EngineEntry(
        fingerprint=fingerprint,
        source=plan.spec.models()[role].model,
        vocab_size=plan.facts[role].vocab_size,
        max_seq_len=limits.engine_max_seq_len,
        max_draft_len=limits.max_draft_len,
        built_with=built_with,
        kv_cache_tokens=plan.engine.memory.pools[role].max_tokens,
        logits_dtype=LOGITS_DTYPE,
        medusa_heads=None if medusa is None else medusa.heads.count,
    )
