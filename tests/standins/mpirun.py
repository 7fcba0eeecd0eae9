"""Stands in for Open MPI's mpirun: a process group for each program, the end of all when one fails or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from calls import record_call

GRACE_S = 2.0


def main() -> int:
    record_call("mpirun")
    words = sys.argv[1:]
    assert words[:3] == ["--allow-run-as-root", "--bind-to", "none"], words
    words = words[3:]
    ranks: list[subprocess.Popen[bytes]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for rank, context in enumerate(split(words)):
            assert context[:2] == ["-n", "1"], context
            environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank)}
            ranks.append(subprocess.Popen(context[2:], env=environment, process_group=0))
        while ranks:
            for rank in ranks:
                code = rank.poll()
                if code:
                    print(f"mpirun noticed that process {rank.pid} exited with {code}", flush=True)
                    return code if code > 0 else 128 - code
            ranks = [rank for rank in ranks if rank.poll() is None]
            time.sleep(0.02)
        return 0
    finally:
        end(ranks)


def split(words: list[str]) -> list[list[str]]:
    contexts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            contexts.append([])
        else:
            contexts[-1].append(word)
    return contexts


def end(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        try:
            rank.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


if __name__ == "__main__":
    sys.exit(main())
