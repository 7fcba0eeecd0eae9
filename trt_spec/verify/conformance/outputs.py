"""Probes of what an answer holds, where it ends, and what came before it."""

from __future__ import annotations

import numpy as np

from trt_spec.verify.conformance.bounds import LONGEST_PROMPT_TOKENS
from trt_spec.verify.conformance.engine import TEXT_TOKENS, ProbedEngine, make_prompt
from trt_spec.verify.conformance.observation import NotApplicable, Observation, join, judge, judge_ids
from trt_spec.verify.conformance.verification import DRAFTS, softmax

REUSED_PROMPT_TOKENS = 200
LARGEST_BLOCK_TOKENS = 64  # tokens_per_block of old versions; new ones have 32
SMALLEST_BLOCK_TOKENS = 8
STRONG_PENALTY = 100.0
LOG_PROB_ROUNDING = 0.05
"""By how much log-probs differ that are told with half-precision logits."""


def probe_end_id(engine: ProbedEngine) -> Observation:
    text = engine.text
    end = text.answer[text.last]
    parts = [
        judge_ids(
            text.answer[: text.last], engine.greedy(text.prompt, TEXT_TOKENS, end_id=end), f"before end id {end}:"
        )
    ]
    if engine.limits.max_draft_len != 0 and text.last < (n := engine.drafts_wanted(DRAFTS)):
        seen = engine.verify(text.prompt, text.answer[:n], runtime_top_k=1, end_id=end)
        parts.append(judge_ids(text.answer[: text.last], seen, "as a draft:"))
    return join(parts)


def probe_stop_word(engine: ProbedEngine) -> Observation:
    text = engine.text
    stop = text.answer[text.last]
    seen = engine.greedy(text.prompt, TEXT_TOKENS, stop_words_list=[[stop], [1]])
    return judge_ids(text.answer[: text.last + 1], seen, f"with stop word {stop} at the end:")


def probe_min_tokens(engine: ProbedEngine) -> Observation:
    text = engine.text
    least = text.last + 2
    end = text.answer[text.last]
    seen = engine.greedy(text.prompt, TEXT_TOKENS, end_id=end, **{engine.min_tokens_name: least})
    return judge(
        len(seen) >= least and end not in seen[:least],
        f"{least} tokens or more without end id {end}, after a prompt of {len(text.prompt)}",
        str(seen),
    )


def probe_penalties(engine: ProbedEngine) -> Observation:
    """A negative penalty that counts the prompt lifts its tokens above all others."""
    text = engine.text
    if text.answer[0] in text.prompt:
        raise NotApplicable("the engine continues with a token of the prompt anyway")
    parts = []
    for name in ("presence_penalty", "frequency_penalty"):
        engine.needs(name)
        (seen,) = engine.greedy(text.prompt, 1, **{name: -STRONG_PENALTY})
        parts.append(judge(seen in text.prompt, f"{name} {-STRONG_PENALTY:g}: a token of the prompt", str(seen)))
    return join(parts)


def probe_input_echo(engine: ProbedEngine) -> Observation:
    text = engine.text
    engine.needs("exclude_input_in_output")
    without = engine.greedy(text.prompt, 2)
    echoed = engine.greedy(text.prompt, 2, exclude_input_in_output=False)
    return join(
        [
            judge_ids(text.answer[:2], without, "input excluded:"),
            judge_ids([*text.prompt, *text.answer[:2]], echoed, "input included:"),
        ]
    )


def probe_sequence_length(engine: ProbedEngine) -> Observation:
    parts = []
    for tokens in (TEXT_TOKENS, 2):
        outputs = engine.ask(engine.text.prompt, tokens, runtime_top_k=1).outputs
        ids, lengths = outputs.get("output_ids"), outputs.get("sequence_length")
        if ids is None or lengths is None:
            return judge(False, "output_ids and sequence_length", f"{sorted(outputs)}")
        holds = ids.ndim == 3 and ids.shape[:2] == (1, 1) and lengths.shape == (1, 1)
        holds &= bool(lengths.reshape(-1)[0] == tokens and ids.shape[-1] >= tokens)
        seen = f"output_ids {list(ids.shape)}, sequence_length {lengths.tolist()}"
        parts.append(judge(holds, f"[1, 1, n] of which {tokens} count", seen))
    return join(parts)


def probe_draft_log_probs(engine: ProbedEngine) -> Observation:
    """Normalised by the mass of the top k, as engines do unless told not to, greedy output_log_probs are 0 even where
    they are set; cum_log_probs are not normalised, and tell."""
    engine.needs("return_log_probs")
    text, n = engine.text, engine.drafts_wanted(DRAFTS)
    answer = engine.ask(text.prompt, n + 1, runtime_top_k=1, draft_input_ids=text.answer[:n], return_log_probs=True)
    if answer.refusal is not None:
        raise NotApplicable(f"the engine refuses return_log_probs with drafts: {answer.refusal}")
    expected = "no log-probs of a call with drafts"
    each, together = (
        np.zeros(0) if given is None else given.reshape(-1).astype(np.float64)
        for given in map(answer.outputs.get, ("output_log_probs", "cum_log_probs"))
    )
    if each.size and not each.any() and not together.size:
        raise NotApplicable("greedy log-probs of 0 may be set or not, and the engine gives no cum_log_probs")
    if not each.any() and not together.any():
        return judge(True, expected, "all zero" if each.size or together.size else "absent")
    rows = engine.logits(text.prompt, n + 1)
    right = np.log([softmax(row)[token] for row, token in zip(rows, text.answer, strict=False)])
    if abs(right.sum()) < 2 * LOG_PROB_ROUNDING:
        raise NotApplicable("the engine is so sure of its answer that log-probs of 0 are right")
    are_set = any(
        found.any() and len(found) >= len(known) and np.allclose(found[: len(known)], known, atol=LOG_PROB_ROUNDING)
        for found, known in ((each, right), (together, np.array([right.sum()])))
    )
    return judge(
        not are_set,
        expected,
        f"{'the right ones' if are_set else 'memory that was not set'}: each {each}, together {together}",
    )


def probe_independent_rounds(engine: ProbedEngine) -> Observation:
    text, half = engine.text, TEXT_TOKENS // 2
    engine.greedy(make_prompt(9), 1)  # another text in between
    seen = engine.greedy([*text.prompt, *text.answer[:half]], half)
    return judge_ids(text.answer[half:], seen, f"resent after {half} tokens:")


def probe_block_reuse(engine: ProbedEngine) -> Observation:
    flag = next(
        (name for name in ("return_perf_metrics", "return_kv_cache_reuse_stats") if name in engine.interface.inputs),
        None,
    )
    if flag is None or "kv_cache_reused_blocks" not in engine.interface.outputs:
        raise NotApplicable("the dialect has no kv_cache_reused_blocks")
    if engine.interface.parameters.get("enable_kv_cache_reuse", "true").lower() == "false":
        raise NotApplicable("enable_kv_cache_reuse is false")
    limits = engine.limits
    room = (limits.max_seq_len or LARGEST_BLOCK_TOKENS + 40) - (limits.max_draft_len or 0) - 2
    tokens = min(REUSED_PROMPT_TOKENS, room, limits.max_num_tokens or LONGEST_PROMPT_TOKENS)
    if tokens <= LARGEST_BLOCK_TOKENS:
        raise NotApplicable(f"{tokens} tokens fit, a block may have {LARGEST_BLOCK_TOKENS}")
    prompt = make_prompt(8, tokens)
    engine.greedy(prompt, 1)
    answer = engine.ask(prompt, 1, runtime_top_k=1, **{flag: True})
    if answer.refusal is not None:
        raise NotApplicable(f"the engine refuses {flag}: {answer.refusal}")
    reused = answer.outputs.get("kv_cache_reused_blocks")
    if reused is None or not reused.size:
        raise NotApplicable("the engine does not return kv_cache_reused_blocks")
    count, most = int(reused.reshape(-1)[0]), -(-tokens // SMALLEST_BLOCK_TOKENS)
    return judge(1 <= count <= most, f"1 to {most} blocks of {tokens} resent tokens reused", f"{count} reused")


def probe_default_seed(engine: ProbedEngine) -> Observation:
    prompt = engine.text.prompt
    seeded = {tuple(engine.ask(prompt, TEXT_TOKENS, **engine.sample(2.0, seed)).ids) for seed in range(1, 5)}
    if len(seeded) == 1:
        raise NotApplicable("four seeds give the same tokens: nothing is drawn")
    first, second = (engine.ask(prompt, TEXT_TOKENS, **engine.sample(2.0, None)).ids for _ in range(2))
    return judge_ids(first, second, "twice the same without a seed:")
