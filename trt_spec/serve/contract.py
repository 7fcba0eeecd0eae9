"""Names of tensors and parameters, and the differences between the versions of NVIDIA's Triton templates.

TensorRT-LLM renamed ``random_seed`` to ``seed`` and ``min_length`` to ``min_tokens`` between 0.19 and 1.3.0rc3.
"""

from __future__ import annotations

SEED_NAMES = ("seed", "random_seed")

Neutral = tuple[object, ...]

REFUSED_UNLESS_NEUTRAL: dict[str, Neutral] = {
    "beam_width": (0, 1),
    "num_return_sequences": (0, 1),
    "repetition_penalty": (0.0, 1.0),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "length_penalty": (0.0, 1.0),
    "len_penalty": (0.0, 1.0),
    "early_stopping": (False, True),  # concerns beam search alone
    "beam_search_diversity_rate": (0.0,),
    "min_tokens": (0, 1),
    "min_length": (0, 1),
    "return_log_probs": (False,),
    "return_context_logits": (False,),
    "use_draft_logits": (False,),
    "runtime_top_p_min": (0.0,),
    "runtime_top_p_decay": (0.0, 1.0),
    "return_kv_cache_reuse_stats": (False,),
    "return_num_input_tokens": (False,),
    "return_num_output_tokens": (False,),
    "stop": (False,),
}
"""Optional inputs that are declared for existing clients, and the values that ask for nothing.

Any other value changes the answer in a way that is not implemented: it is refused, never dropped.
"""

REFUSED_IF_PRESENT = (
    "draft_logits",
    "draft_acceptance_threshold",
    "decoder_input_ids",
    "decoder_text_input",
    "image_input",
    "image_bytes_input",
    "image_url_input",
    "video_bytes_input",
    "bad_words",
    "bad_words_list",
    "embedding_bias",
    "embedding_bias_words",
    "embedding_bias_weights",
    "prompt_embedding_table",
    "prompt_table_extra_id",
    "prompt_table_extra_ids",
    "prompt_vocab_size",
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "guided_decoding_guide_type",
    "guided_decoding_guide",
    "context_phase_params",
    "encoder_input_features",
    "cross_attention_mask",
    "mrope_rotary_cos_sin",
)
"""Inputs whose presence alone asks for something that is not implemented."""


def is_neutral(value: object, neutral: Neutral) -> bool:
    """Whether ``value`` (a Python scalar) asks for nothing."""
    return any(value == allowed for allowed in neutral)
