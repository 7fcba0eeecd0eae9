"""Processes told apart for certain: by pid and start time, by their session, and by a mark that they inherit.

mpirun gives every rank a process group of its own, so that only the session holds a server's processes together. The
mark stands in the environment, or on the command line, of each of them; it is found after the session's leader is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARK_VARIABLE = "TRTSPEC_SERVER"  # its value is the mark
_POLL_S = 0.05
_KILL_WAIT_S = 5.0


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    start_ticks: int


class Process(NamedTuple):
    """A living process; ``command`` is its command line, word by word."""

    pid: int
    parent: int
    start_ticks: int
    command: tuple[str, ...]

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of what runs: the program and, for a script, the script that its interpreter was given."""
        return tuple(Path(word).name for word in self.command[:2])


def read_start_ticks(pid: int) -> int | None:
    """Return the start time of a living process in clock ticks since boot; None if there is none, or a zombie.

    A pid alone says little: it is re-used once its process is gone.
    """
    stat = _read_stat(pid)
    return None if stat is None or stat.state in "ZX" else stat.start_ticks


def list_marked(session: int, mark: str) -> list[int]:
    """Return the living processes that inherited ``mark``, and those of a session that are called with it."""
    return [pid for pid, stat in _list_living() if _is_marked(pid, stat, session, mark)]


def list_processes(session: int, mark: str) -> list[Process]:
    """Return the living processes that are in a session or inherited ``mark``; zombies do not count."""
    return [
        Process(pid, stat.parent, stat.start_ticks, _read_command(pid))
        for pid, stat in _list_living()
        if stat.session == session or _is_marked(pid, stat, session, mark)
    ]


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


def kill_processes(session: int, mark: str, *, whole_session: bool) -> None:
    """Kill what ``list_marked`` finds, or all of ``list_processes``; wait until it is gone, at most 5 seconds."""
    deadline = time.monotonic() + _KILL_WAIT_S
    while time.monotonic() < deadline:
        left = (
            [process.pid for process in list_processes(session, mark)] if whole_session else list_marked(session, mark)
        )
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


def _list_living() -> Iterator[tuple[int, _Stat]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _read_stat(int(entry.name))
            if stat is not None and stat.state not in "ZX":
                yield int(entry.name), stat


def _read_stat(pid: int) -> _Stat | None:
    """Fields of proc(5) stat; the command name before them may hold blanks and brackets."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return _Stat(state=fields[0], parent=int(fields[1]), session=int(fields[3]), start_ticks=int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _is_marked(pid: int, stat: _Stat, session: int, mark: str) -> bool:
    """A command line with the mark outside of the session may be that of somebody who looks for it."""
    if stat.session == session and mark.encode() in _read_bytes(pid, "cmdline"):
        return True
    return f"{MARK_VARIABLE}={mark}".encode() in _read_bytes(pid, "environ").split(b"\0")


def _read_command(pid: int) -> tuple[str, ...]:
    return tuple(_read_bytes(pid, "cmdline").decode("utf-8", errors="replace").rstrip("\0").split("\0"))


def _read_bytes(pid: int, name: str) -> bytes:
    """Empty for a process that is gone or another user's."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
