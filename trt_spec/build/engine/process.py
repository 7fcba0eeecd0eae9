"""Running one command of a step: a complete log, a live last line, and no process that outlives the build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trt_spec.build.engine import guard
from trt_spec.errors import StepFailed

STATUS_EVERY_S = 0.5
TAIL_BYTES = 1 << 16
SHOWN_CHARACTERS = 100
NO_CODE = 127  # what a shell says of a command that cannot be started


@dataclass(frozen=True)
class Command:
    """What to start: ``environment`` is complete; ``cleanup`` is run if the command fails or is stopped.

    ``secrets`` are names of environment variables whose values must not reach the log.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cleanup: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a command ended. ``code`` is negative for a signal; ``peak_memory_bytes`` is its largest process's."""

    code: int
    peak_memory_bytes: int
    duration_s: float


def run_command(
    command: Command, log_path: Path, *, status: Callable[[str], None], stop: threading.Event, hold: int | None
) -> Outcome:
    """Run a command to its end, its output appended to ``log_path``; ``status`` gets its last line now and then.

    ``hold`` is the descriptor of a lock that is kept until every process of the command has ended, even if this process
    is killed. Raises KeyboardInterrupt, with everything ended, once ``stop`` is set.
    """
    started = time.monotonic()
    alive_read, alive_write = os.pipe()
    result_read, result_write = os.pipe()
    settings = {
        "argv": list(command.argv),
        "cwd": str(log_path.parent),
        "log": str(log_path),
        "alive": alive_read,
        "result": result_write,
        "secrets": list(command.secrets),
        "cleanup": list(command.cleanup),
    }
    inherited = [alive_read, result_write, *([] if hold is None else [hold])]
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # whoever reads the build's own output must not wait for the guard
            env=dict(command.environment),
            pass_fds=inherited,
            start_new_session=True,
        )
    except BaseException:
        for descriptor in (alive_write, result_read):
            os.close(descriptor)
        raise
    finally:
        os.close(alive_read)
        os.close(result_write)
    try:
        _wait(process, log_path, alive_write, status, stop)
        outcome = json.loads(_read_all(result_read) or b"{}")
    finally:
        os.close(result_read)
    if stop.is_set():
        raise KeyboardInterrupt
    return _judge(outcome, log_path, time.monotonic() - started)


def _judge(outcome: dict[str, object], log_path: Path, duration_s: float) -> Outcome:
    if "error" in outcome:
        with log_path.open("a", encoding="utf-8") as log:
            log.write(f"The command cannot be started: {outcome['error']}\n")
        return Outcome(NO_CODE, 0, duration_s)
    code, peak = outcome.get("code"), outcome.get("peak_bytes")
    if not isinstance(code, int) or not isinstance(peak, int):
        raise StepFailed(
            "The process that watches over the command was ended, so how the command ended is not known.",
            remedy=f"Run the build again; the log of this attempt is {log_path}.",
            log_path=log_path,
        )
    return Outcome(code, peak, duration_s)


def _wait(
    process: subprocess.Popen[bytes],
    log_path: Path,
    alive: int,
    status: Callable[[str], None],
    stop: threading.Event,
) -> None:
    """Closing ``alive`` is what tells the guard to end the command."""
    is_open = True
    try:
        while True:
            try:
                process.wait(STATUS_EVERY_S)
                return
            except subprocess.TimeoutExpired:
                status(read_last_line(log_path))
            if stop.is_set() and is_open:
                os.close(alive)
                is_open = False
    finally:
        if is_open:
            os.close(alive)
        process.wait()


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, TAIL_BYTES):
        parts.append(part)
    return b"".join(parts)


def read_tail(path: Path) -> str:
    """The end of a log, at most 64 KiB; empty if there is none yet."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def read_last_line(path: Path, limit: int | None = SHOWN_CHARACTERS) -> str:
    """The last line of a log that says something; of a progress bar that is drawn over itself, its last state.

    At most ``limit`` characters, all of them for None.
    """
    lines = [line.strip() for line in read_tail(path).replace("\r", "\n").split("\n")]
    last = next((line for line in reversed(lines) if line), "")
    printable = "".join(character for character in last if character.isprintable())
    return printable[:limit]
