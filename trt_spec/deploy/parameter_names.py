"""Names that NVIDIA gives to backends, parameters and files of model repositories, and the values that decide.

Sources: tensorrtllm_backend v0.14.0 to v0.19.0, inflight_batcher_llm/src and all_models/inflight_batcher_llm. Names
that one module alone reads stand in that module.
"""

from __future__ import annotations

ENGINE_BACKEND = "tensorrtllm"
PYTHON_BACKEND = "python"
ENSEMBLE_PLATFORM = "ensemble"

MODEL_CONFIG = "config.pbtxt"
LLMAPI_FILE = "model.yaml"

# Parameters of an engine's model.
ENGINE_PATH = "gpt_model_path"
ENCODER_PATH = "encoder_model_path"
BATCHING = "gpt_model_type"  # batching_strategy in the template
DEVICE_IDS = "gpu_device_ids"
PARTICIPANT_IDS = "participant_ids"
KV_REUSE = "enable_kv_cache_reuse"
KV_TOKENS = "max_tokens_in_paged_kv_cache"
KV_FRACTION = "kv_cache_free_gpu_mem_fraction"
ATTENTION_WINDOW = "max_attention_window_size"
FAST_LOGITS = "speculative_decoding_fast_logits"
DECODING_MODE = "decoding_mode"
MEDUSA_CHOICES = "medusa_choices"

# Parameters of what calls the engines, and of preprocessing and postprocessing.
TARGET_NAME = "tensorrt_llm_model_name"
DRAFT_NAME = "tensorrt_llm_draft_model_name"
TOKENIZER_DIR = "tokenizer_dir"

MEDUSA = "medusa"  # value of DECODING_MODE

# Values of BATCHING: the backend reads both in-flight ones alike, and refuses all others.
INFLIGHT = "inflight_fused_batching"
INFLIGHT_TYPES = (INFLIGHT, "inflight_batching")
STATIC_TYPES = ("V1", "v1")

TRITON_DTYPES = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}
"""Triton's name of each type that an engine's config.json may give its logits."""
