"""The parameters of a tensorrt_llm model: what is written for each, and why.

How they are read: tensorrtllm_backend v0.14.0 to v0.19.0, inflight_batcher_llm/src/model_instance_state.cc and
model_state.cc. A value that does not parse as the key's type counts as not given, and so does an empty one; words that
NVIDIA's page of parameters gives as defaults ("max_sequence_length") do not parse either. Some documented defaults are
harmful when they are written down: those rows say so. 1.x is taken to read them alike (a public copy of its file, read
in part).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trt_spec.deploy.deployment import EngineDeployment
from trt_spec.deploy.dialect import ModelDialect
from trt_spec.deploy.parameter_names import (
    ATTENTION_WINDOW,
    BATCHING,
    DECODING_MODE,
    DEVICE_IDS,
    ENCODER_PATH,
    ENGINE_PATH,
    FAST_LOGITS,
    INFLIGHT,
    KV_FRACTION,
    KV_REUSE,
    KV_TOKENS,
    MEDUSA,
    MEDUSA_CHOICES,
    PARTICIPANT_IDS,
    TOKENIZER_DIR,
)
from trt_spec.errors import SpecError
from trt_spec.plan.kv_cache import KV_SHARE
from trt_spec.spec.medusa import Choices

UNSET = ""


@dataclass(frozen=True)
class Stated:
    """The value of one parameter in every deployment, and the reason for it."""

    value: str
    why: str


_OTHER_MODE = "belongs to another way of speculating"
_NO_GUIDED = "from 0.19 on the backend does not start without the key; empty switches guided decoding off"

STATED: Mapping[str, Stated] = {
    BATCHING: Stated(INFLIGHT, "in-flight batching; the backend refuses an empty one"),
    "batch_scheduler_policy": Stated("guaranteed_no_evict", "a paused sequence would lose its cached prefix"),
    "max_beam_width": Stated("1", "speculation from a draft model knows no beams"),
    KV_REUSE: Stated("true", "every round resends the sequence; without it the target does not start"),
    "enable_chunked_context": Stated("false", "drafts that do not fit a chunk are dropped without a word"),
    "exclude_input_in_output": Stated("false", "the documented default; the orchestrator asks for it in each request"),
    KV_FRACTION: Stated(
        f"{KV_SHARE:g}",
        "caps max_tokens_in_paged_kv_cache: with the documented 0.9, or none, the engine that loads second on a shared "
        "GPU could get fewer tokens than planned (kvCacheManager.cpp, the smaller one counts); the plan's own share "
        "never binds if the plan is right",
    ),
    "cross_kv_cache_fraction": Stated(
        UNSET,
        "the documented 0.5 stops a decoder-only model (trtGptModelInflightBatching.cpp: 'Do not set "
        "crossKvCacheFraction for decoder-only model')",
    ),
    "kv_cache_host_memory_bytes": Stated("0", "no blocks in host memory: what an unset one means"),
    "kv_cache_onboard_blocks": Stated("true", "what an unset one means; paged context FMHA needs it"),
    ATTENTION_WINDOW: Stated(
        UNSET, "unset is the engine's max_seq_len; a smaller number would make the cache cyclic and end block reuse"
    ),
    "sink_token_length": Stated(UNSET, "unset is none"),
    "iter_stats_max_iterations": Stated("1000", "ExecutorConfig::kDefaultIterStatsMaxIterations (executor.h)"),
    "request_stats_max_iterations": Stated("0", "ExecutorConfig::kDefaultRequestStatsMaxIterations (executor.h)"),
    "normalize_log_probs": Stated(
        "false",
        "the documented true divides by the mass of the top-k candidates, so that greedy decoding reads 0 everywhere "
        "(tensorrtllm_backend issue 276); TensorRT-LLM has changed its own default (pull request 12366)",
    ),
    "lora_cache_host_memory_bytes": Stated(
        str(1 << 30), "the documented 1G, in digits: the backend reads '1G' as one byte (std::stoull)"
    ),
    "lora_prefetch_dir": Stated(UNSET, "no LoRA; only engines with the LoRA plugin read it, and skip a missing folder"),
    DECODING_MODE: Stated(UNSET, "unset is top_k_top_p for one beam; a draft-target target gets its own mode anyway"),
    MEDUSA_CHOICES: Stated(UNSET, _OTHER_MODE),
    "eagle_choices": Stated(UNSET, _OTHER_MODE),
    "lookahead_window_size": Stated(UNSET, _OTHER_MODE),
    "lookahead_ngram_size": Stated(UNSET, _OTHER_MODE),
    "lookahead_verification_set_size": Stated(UNSET, _OTHER_MODE),
    ENCODER_PATH: Stated(UNSET, "a decoder-only model has none"),
    "enable_trt_overlap": Stated(UNSET, "deprecated: any other value is only warned about"),
    TOKENIZER_DIR: Stated(UNSET, _NO_GUIDED),
    "guided_decoding_backend": Stated(UNSET, _NO_GUIDED),
    "xgrammar_tokenizer_info_path": Stated(UNSET, _NO_GUIDED),
    # 0.14 documents no default for these two; later versions do.
    "enable_context_fmha_fp32_acc": Stated("false", "the default of later versions and of the source"),
    "multi_block_mode": Stated("true", "the default of later versions and of the source"),
}
"""What does not depend on the deployment. Keys that are missing here are derived, or have a documented default."""


def plan_engine_parameters(
    template: ModelDialect,
    engine: EngineDeployment,
    *,
    fast_logits: bool = False,
    medusa_choices: Choices | None = None,
) -> dict[str, str]:
    """Return a value for every parameter of a version's template, and for no other.

    ``medusa_choices`` is the tree of an engine with Medusa heads. Raises SpecError where that version has no parameter
    for what is wanted.
    """
    if fast_logits and FAST_LOGITS not in template.parameters:
        raise SpecError(
            "Fast logits are wanted, and the templates of this TensorRT-LLM version know none.",
            remedy="Set speculation.accept to logits or tokens.",
        )
    derived = {
        ENGINE_PATH: engine.path,
        KV_TOKENS: str(engine.kv_cache_tokens),
        DEVICE_IDS: ",".join(map(str, engine.gpu_device_ids)),
        PARTICIPANT_IDS: ",".join(map(str, engine.participant_ids)),
        # Before 0.19 the runtime counts the nodes of the engine's ranks itself.
        "num_nodes": str(engine.nodes),
        FAST_LOGITS: "true" if fast_logits else "false",
    }
    if medusa_choices is not None:
        derived |= {DECODING_MODE: MEDUSA, MEDUSA_CHOICES: render_choices(medusa_choices)}
    stated = {key: row.value for key, row in STATED.items()}
    documented = {key: value for key, value in template.parameters.items() if value is not None}
    values = {**documented, **stated, **derived}
    return {**template.fixed_parameters, **{key: values[key] for key in template.parameters}}


def render_choices(choices: Choices) -> str:
    """A tree as the backend reads it: "{0}, {0, 0}" (docs/model_config.md; utils.cc, csvStrToVecVecInt)."""
    return ", ".join("{" + ", ".join(map(str, path)) + "}" for path in choices)
