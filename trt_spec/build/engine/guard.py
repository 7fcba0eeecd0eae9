"""Runs one command for a build and outlives nothing: run by file as a process of its own, standard library only.

    python -I guard.py SETTINGS    (a JSON object, see ``main``)

The guard ends the command, and all that it started, when the build asks for it or is gone: a pipe from the build that
closes says both. It adopts orphans (PR_SET_CHILD_SUBREAPER), so that workers that left the command's process group are
found, too. It holds the workspace's lock, inherited, until everything has ended. It also writes the log, which goes on
to its end without the build, and keeps the values of secret environment variables out of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
READ_BYTES = 1 << 16
DRAIN_S = 1.0  # how long the output of ended children is awaited
TERMINATE_S = 5.0  # between asking to end and killing
CLEANUP_S = 60.0
REDACTED = b"[secret]"


def main() -> None:
    """Settings: argv, cwd, log, alive and result (descriptors), secrets (variables' names), cleanup (an argv or [])."""
    settings = json.loads(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the build decides; its end is seen by the pipe
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    outcome = _run(settings)
    os.write(settings["result"], json.dumps(outcome).encode())


def _run(settings: dict) -> dict:  # type: ignore[type-arg]
    log = _Log(settings["log"], [value for name in settings["secrets"] if (value := os.environ.get(name))])
    read_end, write_end = os.pipe()
    try:
        child = subprocess.Popen(
            settings["argv"],
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            cwd=settings["cwd"],
            start_new_session=True,
            preexec_fn=_default_signals,
        )
    except OSError as error:
        return {"error": error.strerror or str(error)}
    finally:
        os.close(write_end)
    status, peak_kib, stopped = _watch(child.pid, read_end, settings["alive"], log)
    if stopped or status != 0:
        _clean_up(settings["cleanup"])
    _kill_descendants()
    log.drain(read_end)
    return {"code": os.waitstatus_to_exitcode(status), "peak_bytes": peak_kib * 1024, "stopped": stopped}


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _watch(pid: int, output: int, alive: int, log: _Log) -> tuple[int, int, bool]:
    """Exit status of the command, the largest memory of one of its processes in KiB, whether it was stopped."""
    deadline: float | None = None
    watched = [output, alive]
    while True:
        ready, _, _ = select.select(watched, [], [], POLL_S)
        if output in ready and not log.read(output):
            watched.remove(output)
        if not ready:
            log.flush()
        if alive in ready:
            watched.remove(alive)
            deadline = time.monotonic() + TERMINATE_S
            _signal_group(pid, signal.SIGTERM)
        if deadline is not None and time.monotonic() > deadline:
            _signal_group(pid, signal.SIGKILL)
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage.ru_maxrss, deadline is not None


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _clean_up(argv: list[str]) -> None:
    if argv:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, capture_output=True, timeout=CLEANUP_S, check=False)


def _kill_descendants() -> None:
    """What the command left running has nobody to wait for it; every round finds what the last one orphaned."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = _descendants(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def _descendants(ancestor: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found, grown = {ancestor}, True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        found |= children
        grown = bool(children)
    return sorted(found - {ancestor})


class _Log:
    """A file that takes what a command prints; a secret is replaced even where two reads split it."""

    def __init__(self, path: str, secrets: list[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._secrets = [secret.encode() for secret in secrets]
        self._keep = max((len(secret) - 1 for secret in self._secrets), default=0)
        self._held = b""

    def read(self, descriptor: int) -> bool:
        """False at the end of the output."""
        chunk = os.read(descriptor, READ_BYTES)
        text = self._held + chunk
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        cut = max(len(text) - self._keep, 0) if chunk else len(text)
        self._held = text[cut:]
        self._write(text[:cut])
        return bool(chunk)

    def flush(self) -> None:
        held, self._held = self._held, b""
        self._write(held)

    def drain(self, descriptor: int) -> None:
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            ready, _, _ = select.select([descriptor], [], [], POLL_S)
            if not ready or not self.read(descriptor):
                break
        self.flush()

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the command's own report of it
            while content:
                content = content[os.write(self._file, content) :]


if __name__ == "__main__":
    main()
