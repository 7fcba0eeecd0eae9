"""The side of a peer: commands come in on stdin and answers leave on what was stdout, one JSON object a line.

Imported by the scripts that run in a peer's own environment, so the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(generate: Callable[..., list[int]], answers: Any) -> None:
    """Run ``generate(prompts, tokens, **options)``, which returns the tokens of each answer, for each command."""
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        started = time.perf_counter()
        produced = generate(**command)
        seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, "tokens": sum(produced)}), file=answers, flush=True)


def take_stdout() -> Any:
    """Stdout for answers alone: whatever the peer prints goes to stderr from here on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers
