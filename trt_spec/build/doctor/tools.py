"""Running the small programs that tell about a machine, none of which may hang the command."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass

TIMEOUT_S = 20.0  # nvidia-smi takes seconds on eight GPUs without the persistence daemon
KILL_WAIT_S = 1.0
SHOWN_CHARACTERS = 200
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


@dataclass(frozen=True)
class Answer:
    """What a program printed; ``fault`` is why there is no good answer, in its own words where it has any."""

    text: str = ""
    fault: str | None = None


def run_tool(argv: tuple[str, ...], timeout_s: float = TIMEOUT_S) -> Answer:
    """Run a program found on PATH, in a session of its own; it is killed with its children after ``timeout_s``."""
    program = shutil.which(argv[0])
    if program is None:
        return Answer(fault=f"{argv[0]} is not on PATH")
    try:
        process = subprocess.Popen(
            (program, *argv[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
        )
    except OSError as error:
        return Answer(fault=f"{program} does not start: {error.strerror}")
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Answer(fault=f"{argv[0]} did not answer within {timeout_s:g} s")
    text = out.decode("utf-8", "replace")
    if process.returncode == 0:
        return Answer(text)
    said = _last_line(err.decode("utf-8", "replace")) or _last_line(text)
    return Answer(text, fault=said or f"{argv[0]} ended with code {process.returncode}")


def _environment() -> dict[str, str]:
    """English messages, and no token: what a program prints may be shown."""
    return {**{name: value for name, value in os.environ.items() if name not in TOKEN_VARIABLES}, "LC_ALL": "C"}


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process that hangs in the driver does not even die of SIGKILL: it is left to itself.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=KILL_WAIT_S)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:SHOWN_CHARACTERS] if lines else ""
