"""The conformance table: what TensorRT-LLM's engines do, where it was read, what follows, and how it is probed.

Rules of launching, building and placement are no rows: no endpoint shows them. None of the rules was verified on a GPU
when it was written down here; records of ``trtspec prove`` say which are since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trt_spec.verify.conformance import bounds, outputs, verification
from trt_spec.verify.conformance.engine import ProbedEngine
from trt_spec.verify.conformance.observation import Observation

Probe = Callable[[ProbedEngine], Observation]
Trust = Literal["read in source", "reading, unverified"]

_LAYER = "TensorRT-LLM externalDraftTokensLayer.cpp, externalDraftTokensKernels.cu@1d263f15"
_SCHEDULER = "TensorRT-LLM microBatchScheduler.cpp@0a949d31"
_REQUEST = "TensorRT-LLM llmRequest.h, validate (public copies, commits not recorded)"
_MAX_INPUT = "trtGptModel.h (maxInputLen; public copies, commits not recorded)"
_PENALTIES = "TensorRT-LLM penaltyKernels.cu (commit not recorded)"
_BACKEND = "tensorrtllm_backend model_instance_state.cc@c575d8cb (v0.18.2)"
_BLS = "tensorrtllm_backend tensorrt_llm_bls (v0.18.2), which relies on it"


@dataclass(frozen=True)
class Row:
    """One rule. ``id`` names it in records; ``probed`` says how it is shown, ``probe`` does; None: documented only.

    ``on_draft`` tells that the draft engine is probed for it as well: it concerns calls without drafts.
    """

    id: str
    rule: str
    source: str
    consequence: str
    trust: Trust
    probed: str
    probe: Probe | None
    on_draft: bool = False


ROWS = (
    Row(
        "token-acceptance",
        "Drafts without logits: the target picks its own token at each position and keeps the draft while both are "
        "equal; its first other pick takes the draft's place",
        _LAYER,
        "every token is the target's own; greedy output does not depend on the draft",
        "read in source",
        "the engine's own greedy answer as drafts, one of them wrong, at every position",
        verification.probe_token_acceptance,
    ),
    Row(
        "bonus-token",
        "When all drafts are kept, the target adds one token of its own",
        _LAYER,
        "n drafts bring n + 1 tokens: ask for one more than drafted",
        "read in source",
        "the engine's own greedy answer as drafts",
        verification.probe_bonus_token,
    ),
    Row(
        "sampled-token-acceptance",
        "Token acceptance when sampling: a draft is kept as often as the target draws it",
        _LAYER,
        "exact in distribution, with lower acceptance than by logits",
        "read in source",
        f"one draft of known probability, {verification.SAMPLED_TRIALS} seeds, exact binomial test",
        verification.probe_sampled_token_acceptance,
    ),
    Row(
        "raw-draft-logits",
        "Acceptance by logits: q is the softmax of the draft logits as they are sent, without temperature, top-k or "
        "top-p; a draft is kept if p > u q, u uniform",
        _LAYER,
        "the orchestrator must send draft logits already divided by the temperature, penalised and masked as the "
        "draft drew from them",
        "read in source",
        "draft logits that give half the acceptance if taken as they are, and a clearly different one if divided by "
        f"the request's temperature; {verification.TRIALS} seeds, exact binomial test",
        verification.probe_raw_draft_logits,
    ),
    Row(
        "residual-resampling",
        "A draft that is not kept is replaced by a draw from max(p - q, 0)",
        _LAYER,
        "the output has the target's distribution",
        "read in source",
        f"the same draft with {verification.REPLACED_TRIALS} seeds: no replacement where p is below q",
        verification.probe_residual,
    ),
    Row(
        "acceptance-threshold",
        "draft_acceptance_threshold takes the place of u",
        _LAYER,
        "with a threshold the output no longer has the target's distribution",
        "read in source",
        "a draft of p/q one half, with thresholds below and above it",
        verification.probe_threshold,
    ),
    Row(
        "draft-limit",
        "More drafts than the engine's max_draft_len are refused",
        _REQUEST,
        "plan and orchestrator clamp",
        "read in source",
        "one draft more than max_draft_len",
        bounds.probe_draft_limit,
    ),
    Row(
        "sequence-limit",
        "A request without drafts is granted max_seq_len - prompt - max_draft_len output tokens; more are cut, with a "
        "warning in the log",
        _REQUEST,
        "max_seq_len must hold prompt, answer and drafts; the local engine refuses where the C++ engine cuts",
        "read in source",
        f"a prompt that leaves {bounds.LEFT_TOKENS} tokens, asked for {bounds.LEFT_TOKENS} and one more",
        bounds.probe_sequence_limit,
    ),
    Row(
        "one-beam",
        "External drafts work with one beam; beam_width above max_beam_width is refused",
        "TensorRT-LLM builder.py and runtime (facts row without a commit)",
        "beam search and speculation exclude each other",
        "read in source",
        "beam_width 2",
        bounds.probe_one_beam,
        on_draft=True,
    ),
    Row(
        "whole-prefix",
        "Without chunked context the scheduler counts the whole input and its drafts against max_num_tokens, cached "
        "or not; an input beyond it is refused",
        f"{_SCHEDULER}, {_MAX_INPUT}, issue 2295",
        "the batch that is verified at once is max_num_tokens / (prefix + drafts + 1)",
        "read in source",
        "an input of max_num_tokens - 1, then the same with two more: refused although only those are new. Needs an "
        "engine whose max_num_tokens is known and below max_seq_len. That several requests share the bound in a step "
        "cannot be told from outside",
        bounds.probe_whole_prefix,
    ),
    Row(
        "chunked-context-drops",
        "With chunked context, drafts that do not fit the last chunk are dropped without a word",
        f"{_SCHEDULER} (fitDraftTokens)",
        "enable_chunked_context is false for a target with drafts",
        "read in source",
        "documented only: deployments of trtspec switch it off, and whether a chunk is full depends on other requests",
        None,
    ),
    Row(
        "draft-log-probs",
        "The log-prob outputs of a call with drafts are not set",
        "TensorRT-LLM externalDraftTokensLayer.cpp",
        "log-probs of a speculated answer must come from logits, or be refused",
        "read in source",
        "return_log_probs with right drafts, greedily: output_log_probs and cum_log_probs are absent, zero or not "
        "those of the tokens. cum_log_probs decide, for normalised output_log_probs of greedy tokens are zero anyway",
        outputs.probe_draft_log_probs,
    ),
    Row(
        "block-reuse",
        "A resent prefix is reused in whole blocks of tokens_per_block (64, newer versions 32), and partially where "
        "that is on",
        "TensorRT-LLM kvCacheManager.cpp",
        "a round costs the tokens behind the last whole block",
        "read in source",
        "a prompt longer than a block, sent twice: kv_cache_reused_blocks counts blocks, not tokens, and at least one",
        outputs.probe_block_reuse,
    ),
    Row(
        "independent-rounds",
        "Every round is a request of its own; what was evicted in between is computed again",
        "TensorRT-LLM kvCacheManager.cpp",
        "a resent prefix goes on as if it had not been interrupted",
        "read in source",
        "half a greedy answer, another text, then prompt and half answer again",
        outputs.probe_independent_rounds,
        on_draft=True,
    ),
    Row(
        "end-id",
        "An answer ends before its end id, which is left out: it is shorter than was asked for",
        _BLS,
        "a short answer that no rejection explains has ended",
        "reading, unverified",
        "a token of the greedy answer as end_id, plainly and as a draft",
        outputs.probe_end_id,
        on_draft=True,
    ),
    Row(
        "stop-word",
        "An answer ends behind a stop word, which is kept",
        _BLS,
        "clients cut it off themselves",
        "reading, unverified",
        "a token of the greedy answer as stop word",
        outputs.probe_stop_word,
        on_draft=True,
    ),
    Row(
        "min-tokens",
        "min_tokens (min_length before 1.x) counts the output of the call, not the prompt",
        _PENALTIES,
        "the orchestrator sends what is still missing in every round",
        "read in source",
        "a token of the greedy answer as end_id, and a minimum behind it",
        outputs.probe_min_tokens,
        on_draft=True,
    ),
    Row(
        "penalties-count-prompt",
        "Presence and frequency penalties count the tokens of the prompt as well as those of the output",
        _PENALTIES,
        "a resent prefix is penalised as if it had been generated in one call",
        "read in source",
        "strong negative penalties: the next token is one of the prompt's",
        outputs.probe_penalties,
        on_draft=True,
    ),
    Row(
        "input-echo",
        "output_ids begin with the input unless exclude_input_in_output is true, in the request or, by default, in "
        "the model's parameters",
        _BACKEND,
        "the orchestrator sends it with every request",
        "read in source",
        "the same request with true and false",
        outputs.probe_input_echo,
        on_draft=True,
    ),
    Row(
        "sequence-length",
        "output_ids are [1, beams, longest], padded; sequence_length [1, beams] says how many count, the echoed input "
        "among them",
        _BACKEND,
        "read no further than sequence_length",
        "read in source",
        "a long and a short answer",
        outputs.probe_sequence_length,
        on_draft=True,
    ),
    Row(
        "default-seed",
        "Requests without a seed share the engine's default seed",
        "TensorRT-LLM, reading without a recorded place",
        "always send a seed: two clients would get the same text",
        "reading, unverified",
        "the same sampled request twice without a seed, after different seeds gave different tokens",
        outputs.probe_default_seed,
        on_draft=True,
    ),
)

NOT_ROWS = {
    "rules of building and launching": "FP8 KV cache and paged context FMHA, gather_generation_logits, process groups "
    "and orchestrator mode, KV fractions and load order, refusals of the PyTorch path: `trtspec plan` and `check` hold "
    "them, an endpoint does not show them",
    "fast logits": "a draft call whose logits nobody fetches keeps its request alive: a probe would leave one behind "
    "on a server that keeps the rule",
    "what comes after verification": "when more tokens are asked for than drafts and one: not read in source, and "
    "trtspec never asks",
    "repetition penalty": "its effect depends on the sign of logits; presence and frequency show what is counted",
}
"""What the table leaves out, and why."""
