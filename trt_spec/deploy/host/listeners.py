"""Who listens on a port of this machine, as far as /proc shows it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

_TABLES = ("tcp", "tcp6")
_LISTENING = "0A"  # TCP_LISTEN in proc(5)


def find_listener(port: int) -> tuple[int, str] | None:
    """Return pid and program of a process that listens on a port; None for another user's, which /proc hides."""
    inodes = _list_inodes(port)
    if not inodes:
        return None
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not inodes.isdisjoint(_list_sockets(int(entry.name))):
            return int(entry.name), _read_name(int(entry.name))
    return None


def is_listening(pids: Collection[int], port: int) -> bool:
    """Whether one of these processes listens on a port. True as well where the kernel shows no table of sockets."""
    if not any(Path("/proc/net", table).is_file() for table in _TABLES):
        return True
    inodes = _list_inodes(port)
    return any(not inodes.isdisjoint(_list_sockets(pid)) for pid in pids)


def _list_inodes(port: int) -> set[int]:
    """Inodes of the sockets that listen on a port, on whichever address."""
    return {inode for table in _TABLES for found, inode in _read_table(table) if found == port}


def _read_table(table: str) -> Iterator[tuple[int, int]]:
    """Port and inode of every listening socket: columns local_address, st and inode of proc(5) net/tcp."""
    try:
        lines = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTENING:
            yield int(fields[1].rpartition(":")[2], 16), int(fields[9])


def _list_sockets(pid: int) -> set[int]:
    inodes = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                link = str(Path(entry.path).readlink())
            except OSError:
                continue  # closed meanwhile
            if link.startswith("socket:["):
                inodes.add(int(link[len("socket:[") : -1]))
    except OSError:  # gone, or another user's
        return set()
    return inodes


def _read_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a process"
