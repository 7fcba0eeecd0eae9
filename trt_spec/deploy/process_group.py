"""Processes told apart for certain: by pid and start time, and by the group they were started in."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

_POLL_S = 0.05
_KILL_WAIT_S = 5.0


class _Stat(NamedTuple):
    state: str
    group: int
    start_ticks: int


def read_start_ticks(pid: int) -> int | None:
    """Return the start time of a living process in clock ticks since boot; None if there is none, or a zombie.

    A pid alone says little: it is re-used once its process is gone.
    """
    stat = _read_stat(pid)
    return None if stat is None or stat.state in "ZX" else stat.start_ticks


def list_group(group: int) -> list[int]:
    """Return the pids of the living processes of a process group; zombies do not count."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    stats = ((pid, _read_stat(pid)) for pid in pids)
    return [pid for pid, stat in stats if stat is not None and stat.group == group and stat.state not in "ZX"]


def list_marked(group: int, mark: str) -> list[int]:
    """Return the living processes of a group whose command line holds ``mark``."""
    return [pid for pid in list_group(group) if mark in _read_command(pid)]


def wait_for_exit(pid: int, start_ticks: int, timeout_s: float) -> bool:
    """Wait until this very process is gone; False if it is still there after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        reap(pid)
        if read_start_ticks(pid) != start_ticks:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)


def kill_processes(group: int, mark: str) -> None:
    """Kill what is left of a group and has ``mark`` on its command line; wait until it is gone, at most 5 seconds."""
    deadline = time.monotonic() + _KILL_WAIT_S
    while time.monotonic() < deadline:
        left = list_marked(group, mark)
        if not left:
            return
        for pid in left:
            send_signal(pid, signal.SIGKILL)
            reap(pid)
        time.sleep(_POLL_S)


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def reap(pid: int) -> None:
    """Collect a child of ours that has ended, so that it is no zombie; processes of others are left alone."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)


def _read_stat(pid: int) -> _Stat | None:
    """Fields of proc(5) stat; the command name before them may hold blanks and brackets."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return _Stat(state=fields[0], group=int(fields[2]), start_ticks=int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _read_command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
