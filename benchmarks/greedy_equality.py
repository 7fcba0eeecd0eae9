"""Greedy answers with drafts against the target alone: two hundred prompts, one request and eight requests at a time.

    python benchmarks/greedy_equality.py [WORKSPACE] [--max-tokens N] [--limit N]

The workspace must hold a deployed repository of a pair; by default it is the demo's. Every prompt is answered by the
target alone, through the orchestrator and by the engine called directly, and with drafts at each concurrency; a part of
them again with stop words and minimum lengths. Printed are the answers that differ, by category; none should. Engines
that add in another order for a batch may turn near-ties: those differ here too, `trtspec verify` tells them apart.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from equality_prompts import PROMPTS
from prompts import CHAT

from trt_spec.cli.demo import demo_workspace
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.verify.client import Generation, TritonClient
from trt_spec.verify.text_request import GREEDY, Controls

CONTROLS = {
    "plain": GREEDY,
    "stop words": Controls(stop_words=["\n\n", " the", "다."]),
    "minimum": Controls(min_tokens=12),
}
CONTROLLED_EVERY = 5
DRAFT_TOKENS = 4  # the adaptive length drafts next to nothing for eight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", nargs="?", type=Path, help="default: the demo's")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--limit", type=int, help="prompts a category")
    arguments = parser.parse_args()
    place = Workspace(arguments.workspace) if arguments.workspace else demo_workspace()
    cases = [
        (kind, CHAT.format(text), name)
        for kind, texts in PROMPTS.items()
        for i, text in enumerate(texts[: arguments.limit])
        for name in (CONTROLS if i % CONTROLLED_EVERY == 0 else ("plain",))
    ]
    with (
        running_triton(resolve_launch(place.root, None, find_free_ports())) as server,
        TritonClient(server.grpc_url, deadline_s=600) as client,
        ThreadPoolExecutor(8) as eight,
    ):
        tokenizer = TextTokenizer(place.engine("target"))

        def ask(case: tuple[str, str, str], drafts: int) -> Generation:
            _, text, name = case
            return client.infer(text, arguments.max_tokens, drafts, label=text[:40], controls=CONTROLS[name])

        def draft(case: tuple[str, str, str]) -> Generation:
            return ask(case, DRAFT_TOKENS)

        def ask_engine(case: tuple[str, str, str]) -> tuple[int, ...]:
            ids = tokenizer.encode(case[1])
            new = client.generate_from_ids(
                TARGET_MODEL, ids, arguments.max_tokens, tokenizer.end_ids, label=case[1][:40]
            )
            return new[:-1] if new and new[-1] in tokenizer.end_ids else new

        alone = [ask(case, 0).output_ids for case in cases]
        plain = [i for i, case in enumerate(cases) if case[2] == "plain"]
        report("engine called directly", [cases[i] for i in plain], [alone[i] for i in plain],
               [ask_engine(cases[i]) for i in plain])  # fmt: skip
        for title, answers in (("1 request", map(draft, cases)), ("8 requests", eight.map(draft, cases))):
            told = list(answers)
            report(title, cases, alone, [answer.output_ids for answer in told])
            drafted, accepted = sum(a.drafted for a in told), sum(a.accepted for a in told)
            print(f"    drafted {drafted}, accepted {accepted}")


def report(
    title: str, cases: list[tuple[str, str, str]], expected: list[tuple[int, ...]], found: list[tuple[int, ...]]
) -> None:
    differing = [case for case, a, b in zip(cases, expected, found, strict=True) if a != b]
    print(f"{title}: {len(cases)} answers, {len(differing)} differ")
    for kind, text, name in differing:
        print(f"    {kind}, {name}: {text[:80]!r}")


if __name__ == "__main__":
    main()
