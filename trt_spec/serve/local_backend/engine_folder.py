"""An engine folder: its format, and what its config.json says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

ENGINE_FORMAT = 3
"""Raised with every change of the graph's signature (trt_spec.build.onnx.graph)."""

ENGINE_FILES = ("config.json", "model.onnx", "model.onnx.data")

DRAFT_TOKENS_EXTERNAL = 2
"""The ``speculative_decoding_mode`` of a target engine (tensorrt_llm/models/modeling_utils.py)."""

TOKENS_PER_BLOCK = 32
"""What the C++ engine's figures count its cache in (trtllm-build's default in 1.x, 64 before). Rows have no blocks."""


HEAD_SIZE_STEP = 16
"""GroupQueryAttention on a CPU takes heads of a multiple of it."""


def cache_head_size(head_dim: int) -> int:
    """Values of one position of a head in the KV cache."""
    return -(-head_dim // HEAD_SIZE_STEP) * HEAD_SIZE_STEP


@dataclass(frozen=True)
class EngineLimits:
    """What the engine was built for; lengths in tokens. ``max_seq_len`` includes ``max_draft_len``.

    ``max_num_tokens`` bounds a step as TensorRT-LLM's scheduler does, which counts the whole input of a request that
    starts, cached or not; None: no such bound, as nothing here needs one.
    """

    vocab_size: int
    layers: int
    kv_heads: int
    head_size: int
    max_batch_size: int
    max_seq_len: int
    max_draft_len: int
    verifies_drafts: bool = False
    """Built for draft tokens from outside: the C++ engine's layer for those knows no log-probabilities, whether a call
    brings drafts or not (externalDraftTokensLayer.cpp@1d263f15: every call leaves cumLogProbs and outputLogProbs null).
    """
    max_num_tokens: int | None = None

    def max_output_len(self, prompt_tokens: int) -> int:
        """The target grants what max_seq_len leaves after prompt and draft (TensorRT-LLM's rule)."""
        return self.max_seq_len - self.max_draft_len - prompt_tokens


def load_limits(folder: Path) -> EngineLimits:
    """Reads ``config.json`` of an engine folder; ValueError if it is no engine folder of ours, or another version's."""
    missing = [name for name in ENGINE_FILES if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is not an engine folder: {', '.join(missing)} missing. Run trtspec build again.")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    pretrained, build = config["pretrained_config"], config["build_config"]
    found = build.get("engine_format", 1)
    if found != ENGINE_FORMAT:
        raise ValueError(
            f"{folder} is an engine of format {found}, made by another version of trtspec; this one runs format "
            f"{ENGINE_FORMAT}. Run trtspec build again."
        )
    return EngineLimits(
        vocab_size=pretrained["vocab_size"],
        layers=pretrained["num_hidden_layers"],
        kv_heads=pretrained["num_key_value_heads"],
        head_size=cache_head_size(pretrained["head_size"]),
        max_batch_size=build["max_batch_size"],
        max_seq_len=build["max_seq_len"],
        max_draft_len=build["max_draft_len"],
        verifies_drafts=build.get("speculative_decoding_mode") == DRAFT_TOKENS_EXTERNAL,
        max_num_tokens=build.get("max_num_tokens"),
    )


def plan_rows(limits: EngineLimits, kv_tokens: int | None) -> tuple[int, int]:
    """Rows of the KV cache and tokens in each, together at most ``kv_tokens``; None: as many as the engine can use.

    A budget below max_batch_size sequences of full length leaves fewer rows, one below a single sequence a shorter
    row: requests then wait for a row, and those that cannot fit even alone are refused.
    """
    if kv_tokens is None:
        return limits.max_batch_size, limits.max_seq_len
    if kv_tokens < 2:
        raise ValueError(f"max_tokens_in_paged_kv_cache is {kv_tokens}, expected at least 2.")
    rows = max(1, min(limits.max_batch_size, kv_tokens // limits.max_seq_len))
    return rows, min(limits.max_seq_len, kv_tokens)
