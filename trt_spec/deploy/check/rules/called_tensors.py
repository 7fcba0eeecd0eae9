"""Tensors that a model of the repository sends to another or asks of it: without one of them the call fails.

Sources: trt_spec/serve/triton_engines.py (ours); tensorrtllm_backend v0.17.0 all_models/inflight_batcher_llm,
tensorrt_llm_bls/1/lib/triton_decoder.py (NVIDIA's BLS, which asks the engine for all its outputs).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from trt_spec.deploy.check.rules.roles import Caller, resolve_roles
from trt_spec.deploy.check.view import RepositoryView
from trt_spec.serve.contract import SEED_NAMES

ANSWER = ("output_ids", "sequence_length")
ALWAYS_SENT = ("input_ids", "input_lengths", "request_output_len")
DRAFT_IDS = "draft_input_ids"
DRAFT_LOGITS = "draft_logits"
SENT_BY_OURS = (
    "exclude_input_in_output",
    "streaming",
    "end_id",
    "pad_id",
    "stop_words_list",
    "temperature",
    "runtime_top_k",
    "runtime_top_p",
    *SEED_NAMES,  # the one of them that the version knows
)
ASKED_BY_THEIRS = ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits")

Needed = Mapping[tuple[str, str], frozenset[str]]
"""Names by model and side ("input", "output"); absent where nothing is known to be needed."""


def find_needed(view: RepositoryView) -> Needed:
    """Return what callers need of the engines that they name, and clients of the callers."""
    needed: dict[tuple[str, str], set[str]] = defaultdict(set)
    for caller in resolve_roles(view).callers:
        own = caller.model.name
        needed[own, "output"].add("text_output")
        needed[own, "input"].update(("text_input", "max_tokens"))
        if caller.draft is not None:
            needed[own, "input"].add("num_draft_tokens")
            needed[caller.target, "input"].update(_sent_drafts(caller))
        for engine in filter(None, (caller.target, caller.draft)):
            needed[engine, "input"].update((*ALWAYS_SENT, *(SENT_BY_OURS if caller.is_ours else ())))
            needed[engine, "output"].update(ANSWER if caller.is_ours else (*ANSWER, *ASKED_BY_THEIRS))
    return {key: frozenset(names) for key, names in needed.items()}


def _sent_drafts(caller: Caller) -> tuple[str, ...]:
    return (DRAFT_IDS,) if caller.is_ours else (DRAFT_IDS, DRAFT_LOGITS)
