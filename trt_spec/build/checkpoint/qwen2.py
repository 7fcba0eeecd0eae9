"""Qwen2 and Qwen2.5: Llama's layout with biases on q, k and v, and a configuration of its own."""

from __future__ import annotations

from typing import Any

from trt_spec.build.checkpoint.llama import IGNORED, KV_SCALES, MOE, ROWS
from trt_spec.build.checkpoint.mapping import Family

_CONFIG: dict[str, Any] = {
    "disable_weight_only_quant_plugin": False,
    "num_labels": 1,
    "use_logn_attn": False,
    "moe": {**MOE, "normalization_mode": 0},
    "seq_length": 8192,  # of the first Qwen; newer checkpoints do not have it, and NVIDIA writes this default
    "qwen_type": "qwen2",
    "moe_intermediate_size": 0,
    "moe_shared_expert_intermediate_size": 0,
}
_CONFIG_LATER: dict[str, Any] = {"mlp_only_layers": [], "decoder_sparse_step": 1}

FAMILY = Family(
    rows=ROWS,
    kv_scales=KV_SCALES,
    ignored=IGNORED,
    config={"0.17": _CONFIG, "1.3.0rc3": {**_CONFIG, **_CONFIG_LATER}},
)
