"""The outputs of an engine model: shapes and conditions of the C++ backend, in the dialect of the model's config.

Source: tensorrtllm_backend v0.18.2 inflight_batcher_llm/src/model_instance_state.cc (fillTritonResponse) and the same
file in TensorRT-LLM triton_backend/@0c8de69a for what 0.19 and later add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine_folder import TOKENS_PER_BLOCK
from .engine_request import EngineRequest
from .sequence import GenerateRequest, GenerateResult, RunFigures

_DTYPES: Mapping[str, Any] = {
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP32": np.float32,
    "TYPE_FP16": np.float16,
}


class OutputDialect:
    """Which outputs a model declares, and their types; an answer has no other (the versions differ)."""

    def __init__(self, declared: Sequence[Mapping[str, Any]], vocab_size: int) -> None:
        self._dtypes = {
            output["name"]: _DTYPES[output["data_type"]] for output in declared if output["data_type"] in _DTYPES
        }
        self._vocab_size = vocab_size

    def outputs(
        self, asked: EngineRequest, index: int, result: GenerateResult, *, arrival_ns: int, is_last: bool
    ) -> dict[str, NDArray[Any]]:
        """The arrays of one response, by name; ``index`` is that of the sequence, ``is_last`` its last response.

        Every sequence has responses of its own, whose beam dimension is 1.
        """
        sequence = asked.sequences[index]
        ids = result.new_ids if asked.excludes_input else [*sequence.input_ids, *result.new_ids]
        values: dict[str, Any] = {
            "output_ids": np.array(ids, np.int32).reshape(1, 1, len(ids)),
            "sequence_length": [[len(ids)]],
        }
        if len(asked.sequences) > 1:
            values["sequence_index"] = [[index]]
        if sequence.return_logits:
            logits = np.empty((0, self._vocab_size), np.float32) if result.logits is None else result.logits
            values["generation_logits"] = logits[None, None]
        if result.context_logits is not None:
            values["context_logits"] = result.context_logits[None]
        if result.log_probs is not None:
            values["output_log_probs"] = np.array(result.log_probs).reshape(1, 1, len(result.log_probs))
            values["cum_log_probs"] = [[result.cum_log_prob]]
        if asked.wants_input_tokens:
            values["num_input_tokens"] = [[len(sequence.input_ids)]]
        if asked.wants_output_tokens:
            values["num_output_tokens"] = [[len(ids)]]  # as there: what output_ids holds, the input where it is echoed
        if is_last and (asked.wants_perf_metrics or asked.wants_reuse_stats):
            values |= _reuse_stats(sequence, result.figures)
        if is_last and asked.wants_perf_metrics:
            values |= _perf_metrics(sequence, result.figures, arrival_ns)
        return {
            name: np.ascontiguousarray(value, self._dtypes[name])
            for name, value in values.items()
            if name in self._dtypes
        }


def _reuse_stats(sequence: GenerateRequest, figures: RunFigures) -> dict[str, Any]:
    """The prompt in blocks: how many another request's cache spared, how many were taken from the pool.

    A row keeps no account of what lay in it before, so every block that is taken counts as new.
    """
    blocks = -(-len(sequence.input_ids) // TOKENS_PER_BLOCK)
    reused = figures.reused_tokens // TOKENS_PER_BLOCK
    return {
        "kv_cache_reused_blocks": [[reused]],
        "kv_cache_alloc_new_blocks": [[blocks - reused]],
        "kv_cache_alloc_total_blocks": [[blocks - reused]],
    }


def _perf_metrics(sequence: GenerateRequest, figures: RunFigures, arrival_ns: int) -> dict[str, Any]:
    drafted = len(sequence.draft_ids)
    return {
        "arrival_time_ns": [[arrival_ns]],
        "first_scheduled_time_ns": [[figures.scheduled_ns]],
        "first_token_time_ns": [[figures.first_token_ns]],
        "last_token_time_ns": [[figures.last_token_ns]],
        "acceptance_rate": [[figures.accepted_tokens / drafted if drafted else 0.0]],
        "total_accepted_draft_tokens": [[figures.accepted_tokens]],
        "total_draft_tokens": [[drafted]],
    }
