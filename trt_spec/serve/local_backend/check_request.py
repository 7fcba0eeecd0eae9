"""What an engine takes."""

from __future__ import annotations

from ..triton_request import BadRequest
from .engine import Engine
from .sequence import GenerateRequest


def check_request(engine: Engine, request: GenerateRequest) -> None:
    """Raises BadRequest, before anything is computed, for a request outside the engine's limits.

    Stricter than the C++ engine, which clips an output length that is too large and logs a warning.
    """
    limits, prompt = engine.limits, len(request.input_ids)
    if prompt == 0:
        raise BadRequest("input_ids is empty, expected at least one token.")
    granted = limits.max_output_len(prompt)
    if granted < 1:
        longest = limits.max_seq_len - limits.max_draft_len - 1
        raise BadRequest(f"the input has {prompt} tokens, this engine takes at most {longest}.")
    if not 0 < request.max_new_tokens <= granted + len(request.draft_ids):
        raise BadRequest(
            f"request_output_len is {request.max_new_tokens}, expected 1 to {granted} after {prompt} input tokens."
        )
    if len(request.draft_ids) > limits.max_draft_len:
        raise BadRequest(
            f"{len(request.draft_ids)} draft tokens are more than the engine's max_draft_len {limits.max_draft_len}."
        )
    # The last new token is never fed; of drafts all are.
    needed = prompt + max(request.max_new_tokens - 1, len(request.draft_ids))
    if needed > engine.max_row_tokens:
        raise BadRequest(
            f"the request may need {needed} tokens of KV cache, but max_tokens_in_paged_kv_cache leaves "
            f"{engine.max_row_tokens} for one sequence."
        )
    counted = prompt + len(request.draft_ids)
    if limits.max_num_tokens is not None and counted > limits.max_num_tokens:
        raise BadRequest(
            f"the input has {counted} tokens with its drafts, more than max_num_tokens {limits.max_num_tokens}: all of "
            "them count, cached or not."
        )
    expected = (len(request.draft_ids), limits.vocab_size)
    if request.draft_logits is not None and request.draft_logits.shape != expected:
        raise BadRequest(
            f"draft_logits have shape {list(request.draft_logits.shape)}, expected {list(expected)}: a row for each "
            "draft token."
        )
    ids = [*request.input_ids, *request.draft_ids]
    if min(ids) < 0 or max(ids) >= limits.vocab_size:
        raise BadRequest(f"a token id is outside the vocabulary of {limits.vocab_size}.")
