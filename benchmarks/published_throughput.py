"""NVIDIA's published tokens/s of Llama 405B and 70B on H200 beside what a running server gives.

    python benchmarks/published_throughput.py --url HOST:8001 --group nvidia-405b --draft "Llama 3.2 3B" \\
        --tokenizer workspace/NAME/engines/target
    python benchmarks/published_throughput.py --url http://HOST:8000/v1 --group nvidia-70b --draft "Llama 3.2 1B" \\
        --plain-url http://OTHER:8000/v1

Any Triton or OpenAI-compatible endpoint (see `trtspec verify --url`). A trtspec server is asked for the target alone by
num_draft_tokens 0; another needs --plain-url, or only the drafting server is measured. Both sides take turns.

The posts state hardware, precision and engine limits, but no prompt and answer lengths, draft length or concurrency.
What they do not state is an assumption here, printed as one; --prompt-tokens, --output-tokens, --draft-len and
--concurrency change it. Nobody has run this on the published hardware yet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from trt_spec.errors import TrtspecError
from trt_spec.verify.bootstrap import bootstrap_ratio
from trt_spec.verify.compare import join_runs
from trt_spec.verify.load.address import is_http, resolve_endpoint
from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline, default_total_s
from trt_spec.verify.load.run import check_answered, run_load
from trt_spec.verify.machine import describe_gpus
from trt_spec.verify.results import LoadResult
from trt_spec.verify.summary import summarise_load, user_tokens_per_s
from trt_spec.verify.tokenizer import load_tokenizer
from trt_spec.verify.workload.prompts import load_prompts
from trt_spec.verify.workload.requests import Shape, build_requests

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model")
    parser.add_argument("--plain-url", help="a server of the target alone")
    parser.add_argument("--group", required=True, choices=sorted({row["group"] for row in ROWS}))
    parser.add_argument("--draft", required=True, help="as published, such as 'Llama 3.2 3B'")
    parser.add_argument("--tokenizer", type=Path, help="the target's; needed for --prompt-tokens")
    parser.add_argument("--prompt-tokens", type=int, help="assumed; prompts as they are without it")
    parser.add_argument("--output-tokens", type=int, default=512)
    parser.add_argument("--draft-len", type=int, help="of a trtspec server; its default without it")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def find_row(group: str, draft: str) -> dict[str, Any]:
    """The published row. Exits with what there is for another draft."""
    drafts = {row["draft"]: row for row in ROWS if row["group"] == group and row["draft"]}
    if draft not in drafts:
        sys.exit(f"--draft {draft!r} is not published in {group}; published: {', '.join(drafts)}")
    return drafts[draft]


async def measure(given: argparse.Namespace) -> dict[str, list[LoadResult]]:
    """Loads by side, ``plain`` and ``drafted`` in turn; ``plain`` is empty where there is no target alone."""
    tokenizer = load_tokenizer(given.tokenizer) if given.tokenizer else None
    prompt_tokens = (given.prompt_tokens, given.prompt_tokens) if given.prompt_tokens else None
    shape = Shape(prompt_tokens, (given.output_tokens, given.output_tokens))
    prompts = load_prompts(whole=True)
    is_ours = not is_http(given.url) and not given.plain_url
    sides = {"drafted": (given.url, given.draft_len)}
    if is_ours or given.plain_url:
        sides["plain"] = (given.plain_url or given.url, 0 if is_ours else None)
    count = (lambda text: len(tokenizer.encode(text))) if tokenizer else None
    deadline = Deadline(total_s=default_total_s(given.output_tokens))
    endpoints = {side: resolve_endpoint(url, given.model) for side, (url, _) in sides.items()}
    loads: dict[str, list[LoadResult]] = {"plain": [], "drafted": []}
    try:
        for endpoint in endpoints.values():
            await endpoint.open()
        for block in range(-1, given.blocks):  # the first one warms up
            for side, (_, length) in sides.items():
                requests = build_requests(prompts, given.requests, shape, tokenizer, num_draft_tokens=length)
                arrival, bounds = ClosedLoop(given.concurrency), Bounds(len(requests))
                load = await run_load(endpoints[side], requests, arrival, bounds, deadline, count)
                check_answered(load, endpoints[side].name)
                if block >= 0:
                    loads[side].append(load)
    finally:
        for endpoint in endpoints.values():
            await endpoint.close()
    return loads


def report(given: argparse.Namespace, row: dict[str, Any], loads: dict[str, list[LoadResult]]) -> dict[str, Any]:
    """Measured and published figures; tokens/s are medians over answers, first token included."""
    speeds = {
        side: [speed for run in runs for item in run.requests if (speed := user_tokens_per_s(item)) is not None]
        for side, runs in loads.items()
    }
    pairs = [
        (a, b)
        for left, right in zip(loads["plain"], loads["drafted"], strict=False)
        for one, other in zip(left.requests, right.requests, strict=False)
        if (a := user_tokens_per_s(one)) and (b := user_tokens_per_s(other)) and one.id == other.id
    ]
    ratio = bootstrap_ratio([a for a, _ in pairs], [b for _, b in pairs], seed=0)
    baseline = next((r["tokens_per_s"] for r in ROWS if r["group"] == row["group"] and r["draft"] is None), None)
    summary = summarise_load(join_runs(loads["drafted"]))
    return {
        "published": {
            "plain_tokens_per_s": row.get("baseline_tokens_per_s", baseline),
            "drafted_tokens_per_s": row["tokens_per_s"],
            "speedup": row["speedup"],
            "conditions": row["conditions"],
            "source": row["source"],
            "trust": row["trust"],
        },
        "measured": {
            "plain_tokens_per_s": median(speeds["plain"]) if speeds["plain"] else None,
            "drafted_tokens_per_s": median(speeds["drafted"]),
            "speedup": None if ratio is None else [ratio.value, ratio.low, ratio.high],
            "answered": summary.answered,
            "requests": summary.requests,
            "token_source": summary.token_source,
            "alpha": summary.acceptance.alpha if summary.acceptance else None,
        },
        "assumed": {
            "prompt_tokens": given.prompt_tokens or "prompts as they are",
            "output_tokens": given.output_tokens,
            "draft_len": given.draft_len or "the server's",
            "concurrency": given.concurrency,
        },
        "client_gpus": describe_gpus() or "none: the server runs elsewhere, or on a processor",
    }


def show(found: dict[str, Any]) -> None:
    measured, published = found["measured"], found["published"]
    print(f"{'':28}{'measured':>24}{'published':>12}")
    for name, key in (("target alone, tokens/s", "plain"), ("with drafts, tokens/s", "drafted")):
        mine, theirs = measured[f"{key}_tokens_per_s"], published[f"{key}_tokens_per_s"]
        print(f"{name:28}{'-' if mine is None else f'{mine:.2f}':>24}{theirs:>12.2f}")
    gain = measured["speedup"]
    words = "-" if gain is None else "{:.2f}x ({:.2f} to {:.2f})".format(*gain)
    print(f"{'speed-up':28}{words:>24}{published['speedup']:>11.2f}x")
    alpha = "" if measured["alpha"] is None else f", alpha {measured['alpha']:.3f}"
    print(f"\nanswered {measured['answered']} of {measured['requests']}, tokens by {measured['token_source']}{alpha}")
    print(f"published under: {published['conditions']} ({published['source']}; trust: {published['trust']})")
    assumed = ", ".join(f"{name} {value}" for name, value in found["assumed"].items())
    print(f"not published, assumed here: {assumed}")
    print(f"GPUs of this machine: {found['client_gpus']}")


def main() -> None:
    given = parse()
    row = find_row(given.group, given.draft)
    if given.prompt_tokens and not given.tokenizer:
        sys.exit("--prompt-tokens needs --tokenizer: the target's own counts them.")
    try:
        found = report(given, row, asyncio.run(measure(given)))
    except TrtspecError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1)) if given.json else show(found)


if __name__ == "__main__":
    main()
