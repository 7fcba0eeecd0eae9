"""Where each derived value of a plan comes from: its formula with the numbers in it, and the source of the rule."""

from __future__ import annotations

import difflib

from trt_spec.errors import SpecError
from trt_spec.plan.draft_lengths import CPU_LOSES_AT
from trt_spec.plan.explanation import Explanation
from trt_spec.plan.hardware import GIB
from trt_spec.plan.limits import EngineLimits
from trt_spec.plan.llmapi_explain import explain_llmapi
from trt_spec.plan.medusa_explain import explain_medusa
from trt_spec.plan.plan import EnginePlan, Plan
from trt_spec.plan.self_draft import explain_self_draft
from trt_spec.plan.speed import SpeedPrediction


def explain(plan: Plan, field: str) -> Explanation:
    """The explanation of one derived field; SpecError that lists the fields if there is none of that name."""
    known = {explanation.field: explanation for explanation in explain_all(plan)}
    if field in known:
        return known[field]
    close = difflib.get_close_matches(field, known, n=1)
    meant = f' Did you mean "{close[0]}"?' if close else ""
    raise SpecError(
        f'"{field}" is no derived field of this plan.{meant}',
        remedy=f"Derived fields: {', '.join(known) or 'none, the plan is refused before anything is derived'}.",
    )


def explain_all(plan: Plan) -> tuple[Explanation, ...]:
    """Every derived field of the plan."""
    if plan.llmapi is not None:
        return explain_llmapi(plan.llmapi.plan, plan.llmapi.launch.world_size)
    if plan.engine is None:
        lengths = (
            Explanation(
                f"{step.role}.max_seq_len",
                str(step.params["max_seq_len"]),
                f"max_input_len {step.params['max_input_len']} + max_output_len {plan.spec.limits.max_output_len} "
                f"+ max_draft_len {step.params['max_draft_len']}",
                "as trtllm-build adds the draft to max_seq_len (builder.py)",
            )
            for step in plan.steps
        )
        self_draft = () if plan.self_draft is None else explain_self_draft(plan.self_draft)
        return (*lengths, *self_draft, *_explain_draft_lengths(plan))
    limits = (item for role in plan.engine.limits.values() for item in _explain_limits(plan, role))
    return (
        *limits,
        *_explain_placement(plan, plan.engine),
        *_explain_memory(plan.engine),
        *_explain_prediction(plan.engine),
        *_explain_draft_lengths(plan),
    )


def _explain_limits(plan: Plan, limits: EngineLimits) -> tuple[Explanation, ...]:
    role, spec = limits.role, plan.spec
    engine = plan.engine
    assert engine is not None
    lengths = f"max_input_len {spec.limits.max_input_len} + max_output_len {spec.limits.max_output_len}"
    return (
        Explanation(
            f"{role}.max_seq_len",
            str(limits.max_seq_len),
            f"{lengths} + max_draft_len {limits.max_draft_len}, at most the model's context "
            f"{plan.facts[role].max_position_embeddings} + max_draft_len",
            "the runtime grants max_seq_len - prompt - max_draft_len output tokens (TensorRT-LLM builder.py, executor)",
        ),
        Explanation(
            f"{role}.max_num_tokens",
            str(limits.max_num_tokens),
            f"for up to {limits.max_batch_size} sequences of {limits.max_seq_len} tokens each, capped by activation "
            f"memory and by the sequences the KV cache holds: {limits.effective_verify_batch} at full length",
            "the micro-batch scheduler counts every resent prefix in full (TensorRT-LLM issue 2295)",
        ),
        Explanation(
            f"{role}.effective_verify_batch",
            str(limits.effective_verify_batch),
            f"min(max_batch_size {limits.max_batch_size}, max_num_tokens {limits.max_num_tokens} / full sequence)",
            "microBatchScheduler.cpp",
        ),
        Explanation(
            f"{role}.tokens_per_block",
            str(limits.tokens_per_block),
            f"default of TensorRT-LLM {engine.profile.version}",
            f"recorded flags ({engine.profile.flags_trust})",
        ),
        Explanation(
            f"{role}.gather_generation_logits",
            str(limits.gather_generation_logits).lower(),
            f"true if speculation.accept needs logits; it is {spec.speculation.accept}",
            "the Triton backend sets no run-time switch for it",
        ),
        Explanation(
            f"{role}.paged_context_fmha",
            str(limits.paged_context_fmha).lower(),
            "always on",
            "KV block reuse, which draft-target needs, requires it (trtGptModelInflightBatching.cpp)",
        ),
    )


def _explain_placement(plan: Plan, engine: EnginePlan) -> tuple[Explanation, ...]:
    placement = engine.placement
    ranks = ", ".join(f"{role} {list(item.participant_ids)}" for role, item in placement.roles.items())
    return (
        Explanation(
            "placement.mode",
            placement.mode,
            f"{len(placement.roles)} engines, accept {plan.spec.speculation.accept}, "
            f"{plan.spec.hardware.nodes if plan.spec.hardware else 1} node(s)",
            "two engines need the orchestrator; fast logits and several nodes need it pre-spawned "
            "(launch_triton_server.py, llama_multi_instance.md)",
        ),
        Explanation(
            "placement.world_size",
            str(placement.world_size),
            f"MPI ranks the launcher starts; participant ids: {ranks}",
            "rank 0 is the orchestrator when pre-spawned",
        ),
    )


def _explain_memory(engine: EnginePlan) -> tuple[Explanation, ...]:
    found = []
    for role, pool in engine.memory.pools.items():
        ranks = [rank for gpu in engine.memory.gpus for rank in gpu.engines if rank.role == role]
        found.append(
            Explanation(
                f"{role}.max_tokens_in_paged_kv_cache",
                str(pool.max_tokens),
                f"what weights and buffers leave of each GPU / {ranks[0].kv_bytes_per_token} bytes a token; one "
                f"sequence of full length takes {pool.sequence_tokens}, so {pool.full_sequences} fit",
                "given as tokens to both engines: fractions depend on the order of loading (kvCacheManager.cpp)",
            )
        )
        found.append(
            Explanation(
                f"{role}.weights_bytes",
                str(max(rank.weights_bytes for rank in ranks)),
                f"largest rank, {max(rank.weights_bytes for rank in ranks) / GIB:.2f} GiB: every tensor of the "
                "checkpoint by its shape and dtype on that rank, replicated ones in full",
                "TensorRT-LLM checkpoint format; checked against recorded converter outputs",
            )
        )
    return tuple(found)


def _explain_draft_lengths(plan: Plan) -> tuple[Explanation, ...]:
    """What deploy writes as the orchestrator's start."""
    lengths = plan.draft_len_by_running
    if not lengths:
        return ()
    if plan.engine is not None and plan.engine.speed is not None:
        formula = "for each number of requests in flight the length with the largest predicted gain"
        source = "docs/explanation/speed-model.md"
    elif plan.engine is not None:
        formula, source = "max_draft_len throughout: no speed is predicted", "docs/explanation/drafting.md"
    else:
        formula = f"from max_draft_len evenly down to 0 at {CPU_LOSES_AT} requests in flight"
        source = "steps measured on 2 CPU cores, docs/explanation/drafting.md"
    return (
        Explanation(
            "speculation.draft_len_by_running",
            ",".join(map(str, lengths)),
            f"{formula}, the last one for all beyond; the orchestrator corrects it by what it measures",
            source,
        ),
    )


def _explain_prediction(engine: EnginePlan) -> tuple[Explanation, ...]:
    if engine.medusa is not None:
        return explain_medusa(engine.medusa)
    return () if engine.speed is None else _explain_speed(engine.speed)


def _explain_speed(speed: SpeedPrediction) -> tuple[Explanation, ...]:
    acceptance = speed.acceptance
    return (
        Explanation(
            "speed.acceptance",
            f"{acceptance.alpha:.3f} ({acceptance.low:.3f} to {acceptance.high:.3f})",
            acceptance.explanation,
            f"origin: {acceptance.origin}; docs/explanation/speed-model.md",
        ),
        *(
            Explanation(
                f"speed.best_draft_len.batch_{row.batch}",
                str(row.best_draft_len),
                f"the length of 0 to {len(row.speedup) - 1} with the largest predicted gain, {row.best_speedup:.2f}x",
                "S = E(alpha, g) * T_target(1) / round time (Leviathan et al., arXiv 2211.17192)",
            )
            for row in speed.batches
        ),
    )
