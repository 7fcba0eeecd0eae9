"""Probes of what an engine refuses or cuts."""

from __future__ import annotations

from trt_spec.verify.conformance.endpoint import Answer
from trt_spec.verify.conformance.engine import ProbedEngine, make_prompt
from trt_spec.verify.conformance.observation import NotApplicable, Observation, judge

LONGEST_PROMPT_TOKENS = 8192
"""A probe is a small request: engines whose limits lie beyond are not probed for them."""
MOST_DRAFTS = 256
LEFT_TOKENS = 4


def probe_draft_limit(engine: ProbedEngine) -> Observation:
    engine.needs("draft_input_ids")
    limit = engine.limits.max_draft_len
    if not limit or limit > MOST_DRAFTS:
        raise NotApplicable(f"max_draft_len of the engine is {'not known here' if limit is None else limit}")
    drafts = make_prompt(5, limit + 1)
    answer = engine.ask(engine.text.prompt, limit + 2, runtime_top_k=1, draft_input_ids=drafts)
    return judge(answer.refusal is not None, f"{limit + 1} drafts refused, max_draft_len {limit}", _describe(answer))


def probe_sequence_limit(engine: ProbedEngine) -> Observation:
    limits = engine.limits
    if limits.max_seq_len is None or limits.max_draft_len is None:
        raise NotApplicable("max_seq_len and max_draft_len of the engine are not known here")
    prompt_tokens = limits.max_seq_len - limits.max_draft_len - LEFT_TOKENS
    longest = min(limits.max_num_tokens or LONGEST_PROMPT_TOKENS, LONGEST_PROMPT_TOKENS)
    if limits.max_kv_tokens is not None:
        longest = min(longest, limits.max_kv_tokens - limits.max_draft_len - LEFT_TOKENS)
    if not 0 < prompt_tokens <= longest:
        raise NotApplicable(f"it would take a prompt of {prompt_tokens} tokens, {longest} are possible here")
    prompt = make_prompt(6, prompt_tokens)
    granted = engine.ask(prompt, LEFT_TOKENS, runtime_top_k=1)
    beyond = engine.ask(prompt, LEFT_TOKENS + 1, runtime_top_k=1)
    holds = granted.refusal is None and len(granted.ids) == LEFT_TOKENS
    holds &= beyond.refusal is not None or len(beyond.ids) == LEFT_TOKENS
    return judge(
        holds,
        f"{LEFT_TOKENS} tokens after {prompt_tokens} (max_seq_len {limits.max_seq_len}, max_draft_len "
        f"{limits.max_draft_len}), one more cut or refused",
        f"{_describe(granted)}; one more: {_describe(beyond)}",
    )


def probe_one_beam(engine: ProbedEngine) -> Observation:
    engine.needs("beam_width")
    answer = engine.ask(engine.text.prompt, 2, beam_width=2)
    return judge(answer.refusal is not None, "beam_width 2 refused", _describe(answer))


def probe_whole_prefix(engine: ProbedEngine) -> Observation:
    limits, bound = engine.limits, engine.limits.max_num_tokens
    if bound is None:
        raise NotApplicable("max_num_tokens of the engine is not known here, or it has none")
    if engine.interface.parameters.get("enable_chunked_context", "").lower() == "true":
        raise NotApplicable("with chunked context a longer input is cut into chunks")
    room = (limits.max_seq_len or LONGEST_PROMPT_TOKENS) - (limits.max_draft_len or 0) - 1
    room = min(room, limits.max_kv_tokens or LONGEST_PROMPT_TOKENS, LONGEST_PROMPT_TOKENS)
    if not 1 < bound < room:
        raise NotApplicable(f"max_num_tokens {bound} is not below the longest input to be sent here, {room} tokens")
    prefix = make_prompt(7, bound - 1)
    first = engine.ask(prefix, 1, runtime_top_k=1)
    again = engine.ask([*prefix, *prefix[:2]], 1, runtime_top_k=1)
    return judge(
        first.refusal is None and again.refusal is not None,
        f"{bound - 1} tokens answered, then the same and 2 new ones refused: max_num_tokens {bound} counts all",
        f"{_describe(first)}; {_describe(again)}",
    )


def _describe(answer: Answer) -> str:
    if answer.refusal is not None:
        return f"refused ({answer.refusal})"
    return f"answered with {len(answer.ids)} tokens"
