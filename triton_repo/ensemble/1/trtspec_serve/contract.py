"""The contract with Triton clients: names that everybody uses, and what is done with inputs that are not implemented.

TensorRT-LLM renamed ``random_seed`` to ``seed`` and ``min_length`` to ``min_tokens`` between 0.19 and 1.3.0rc3.
"""

from __future__ import annotations

from typing import Literal

TARGET_MODEL = "tensorrt_llm"
DRAFT_MODEL = "tensorrt_llm_draft"
UNARY_MODEL = "tensorrt_llm_bls"
STREAMING_MODEL = "ensemble"
ENGINE_DRAFTS = "engine_drafts"
"""Parameter of the orchestrator, "true" where the target drafts inside (Medusa heads) and tells nobody its counts."""
SEED_NAMES = ("seed", "random_seed")
MIN_TOKENS_NAMES = ("min_tokens", "min_length")  # renamed in the same version as the seed

QUEUE_FULL = "requests are waiting already"
SERVER_STOPPING = "the server is stopping"
CANCELLED = "cancelled"
TARGET_FAILED = "the target engine failed"
ORCHESTRATOR_FAILED = "the orchestrator failed"
"""What the orchestrator's errors begin with (QUEUE_FULL: contain). An error in a stream is a text without a code, so
clients tell by these words whose fault it was."""

LogProbSource = Literal["engine", "logits", "none"]
"""Where log-probabilities come from: an engine built for drafts from outside leaves its own unset."""

NEUTRAL: dict[str, tuple[object, ...]] = {
    "beam_width": (0, 1),
    "num_return_sequences": (0, 1),
    "length_penalty": (0.0, 1.0),
    "len_penalty": (0.0, 1.0),
    "early_stopping": (False, True),  # concerns beam search alone
    "beam_search_diversity_rate": (0.0,),
    "runtime_top_p_min": (0.0,),
    "runtime_top_p_decay": (0.0, 1.0),
    "runtime_top_p_reset_ids": (-1,),
    "return_log_probs": (False,),
    "return_context_logits": (False,),
    "return_generation_logits": (False,),
    "return_perf_metrics": (False,),
    "return_kv_cache_reuse_stats": (False,),
    "return_num_input_tokens": (False,),
    "return_num_output_tokens": (False,),
    "use_draft_logits": (False,),
    "stop": (False,),
}
"""Values of optional inputs that ask for nothing; clients of NVIDIA's templates send many of them always."""

_ASK_THE_ENGINE = f"Ask the model {TARGET_MODEL} for it."
_MERGE = "Deploy a checkpoint that the adapter is merged into."
_NO_GRAMMAR = "Drafts know no grammar: describe the format in text_input and check the answer."
_TEXT_ALONE = "This deployment reads text alone."
_NO_PROMPT_TUNING = "Prompt tuning is not served: put the instruction into text_input."

ADVICE: dict[str, str] = {
    "num_return_sequences": "Send a request for each answer, with a seed of its own: they share the prompt's cache.",
    "beam_width": "Speculation from a draft model knows no beams.",
    "length_penalty": "It concerns beam search alone.",
    "return_context_logits": _ASK_THE_ENGINE,
    "return_generation_logits": _ASK_THE_ENGINE,
    "return_kv_cache_reuse_stats": _ASK_THE_ENGINE,
    "return_num_input_tokens": _ASK_THE_ENGINE,
    "return_num_output_tokens": "Count output_ids, which return_perf_metrics gives.",
    "use_draft_logits": "How drafts are accepted is deployed: speculation.accept in the spec.",
    "guided_decoding_guide_type": _NO_GRAMMAR,
    "guided_decoding_guide": _NO_GRAMMAR,
    "lora_task_id": _MERGE,
    "lora_weights": _MERGE,
    "lora_config": _MERGE,
    "prompt_embedding_table": _NO_PROMPT_TUNING,
    "prompt_vocab_size": _NO_PROMPT_TUNING,
    "prompt_table_extra_id": _NO_PROMPT_TUNING,
    "decoder_text_input": "It is for models with an encoder.",
    "image_input": _TEXT_ALONE,
    "image_bytes_input": _TEXT_ALONE,
    "image_url_input": _TEXT_ALONE,
    "image_sizes_input": _TEXT_ALONE,
    "video_bytes_input": _TEXT_ALONE,
}
"""What a refused client may do instead."""

HARMLESS = frozenset(
    {
        "pad_id",  # answers are never padded
        "decoder_input_ids",  # read for encoder-decoder models alone (tensorrtllm_backend v0.18.2, utils.cc), and
        "decoder_input_lengths",  # sent with every request by NVIDIA's preprocessing
        "retention_token_range_starts",  # hints to a block cache change no token
        "retention_token_range_ends",
        "retention_token_range_priorities",
        "retention_token_range_durations_ms",
        "retention_decode_priority",
        "retention_decode_duration_ms",
    }
)
"""Inputs that cannot change the answer, whatever their value."""
