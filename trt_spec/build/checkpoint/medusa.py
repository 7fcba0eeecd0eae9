"""Medusa heads in a conversion: where each of their tensors comes from, and config.json as NVIDIA's script writes it.

Sources: TensorRT-LLM examples/medusa/convert_checkpoint.py and models/medusa/weight.py (0.17 development tree and
1.3.0rc3), whose recorded output is the same for both: every head is split by output rows, biases too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trt_spec.build.checkpoint.outputs import Cast, Largest, Piece, Recipe
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.medusa_heads import FLOATS, FP8, MEDUSA_ARCHITECTURE, MODELOPT_PREFIX, MedusaHeads
from trt_spec.plan.tensors import Split

OURS = "medusa_heads."
_SCALES = {"activation_scaling_factor": "input_scale", "weights_scaling_factor": "weight_scale"}
_NAME = re.compile(
    r"medusa_heads\.(?P<head>\d+)\.(?:medusa_layers\.(?P<layer>\d+)\.linear|lm_head)\.(?P<attribute>\w+)"
)

Take = Callable[[str, tuple[int, ...], tuple[str, ...]], None]
"""Told of each source tensor that is used: name, shape, data types that will do. Raises SpecError."""


def head_recipe(
    name: str, heads: MedusaHeads, facts: ModelFacts, rank: tuple[int, int], prefix: str, take: Take
) -> Recipe:
    """The bytes of our tensor ``name`` on ``rank`` (tensor rank, tensor-parallel size); ``prefix`` is the source's."""
    match = _NAME.fullmatch(name)
    assert match is not None
    is_output, attribute = match["layer"] is None, match["attribute"]
    module = f"{prefix}{match['head']}." + (f"{heads.layers}" if is_output else f"{match['layer']}.linear")
    if attribute in _SCALES:
        scale = f"{module}.{_SCALES[attribute]}"
        take(scale, (1,), FLOATS)
        return Largest((scale,))
    rows = facts.vocab_size if is_output else facts.hidden_size
    share, is_weight = rows // rank[1], attribute == "weight"
    columns = facts.hidden_size if is_weight else 1
    dtypes = (FP8,) if heads.is_fp8 and is_weight else FLOATS
    take(f"{module}.{attribute}", (rows, columns) if is_weight else (rows,), dtypes)
    return Cast((Piece(f"{module}.{attribute}", (rank[0] * share, (rank[0] + 1) * share), (0, columns)),))


def source_prefix(tensors: Mapping[str, object]) -> str:
    """What the names of the heads' tensors begin with: ModelOpt's prefix, nothing in a file of their own."""
    return MODELOPT_PREFIX if any(name.startswith(MODELOPT_PREFIX) for name in tensors) else ""


def render_medusa_config(
    split: Split,
    source_config: Mapping[str, Any],
    scaling: dict[str, Any] | None,
    quantization: Mapping[str, Any],
    max_draft_len: int,
) -> dict[str, Any]:
    """config.json of a Medusa checkpoint; ``quantization`` is that section of ModelOpt's hf_quant_config.json.

    The rotary scaling is written whole: NVIDIA's script of 1.x keeps its type alone. A head size that does not follow
    from hidden size and heads is added, which the script leaves out.
    """
    facts, heads = split.facts, split.medusa
    assert heads is not None
    tp, pp = split.tensor_parallel, split.pipeline_parallel
    derived = facts.head_dim == facts.hidden_size // facts.heads
    return {
        "architecture": MEDUSA_ARCHITECTURE,
        "dtype": split.dtype,
        "logits_dtype": "float32",
        "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_key_value_heads": facts.kv_heads,
        "vocab_size": facts.vocab_size,
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": facts.max_position_embeddings,
        "hidden_act": source_config.get("hidden_act", "silu"),
        "rotary_base": facts.rope_theta,
        "rotary_scaling": scaling,
        "norm_epsilon": facts.rms_norm_eps,
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None, **quantization},
        "mapping": {"world_size": tp * pp, "tp_size": tp, "pp_size": pp},
        "use_parallel_embedding": split.embedding_axis is not None,
        "embedding_sharding_dim": split.embedding_axis or 0,
        "max_draft_len": max_draft_len,
        "num_medusa_heads": heads.count,
        "num_medusa_layers": heads.layers,
        "model_type": str(source_config.get("model_type", facts.family)),
        **({} if derived else {"head_size": facts.head_dim}),
    }
