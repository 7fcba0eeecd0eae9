"""Publishing files: everything trtspec writes appears complete under its final name, or not at all.

A folder is made under a hidden name beside its destination, flushed, then renamed. The hidden folder carries a lock for
as long as its writer lives (a process id would lie: they are re-used, and every container has its own), so a later run
can tell the leftovers of a killed one from the work of a live one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

PARTIAL_SUFFIX = ".partial"  # being written
RETIRED_SUFFIX = ".retired"  # the previous version, moved aside for the instant of the exchange
_READ_CHUNK_BYTES = 4 << 20


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Give an empty folder to write into; on a normal exit it replaces ``path``, on any exception it is removed.

    The new folder is on the same file system as ``path`` and reaches the disk before it gets its name. Leftovers of
    killed runs of the same destination are removed first. Where two processes may write one destination, the caller
    serialises them with ``exclusive``. Raises OSError where the file system refuses, or ``path`` is no folder.
    """
    path = path.absolute()
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    partial, lock = _make_locked_folder(path)
    try:
        yield partial
        publish_directory(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def publish_directory(complete: Path, path: Path) -> None:
    """Flush a complete folder and give it the name ``path`` on the same file system, replacing what is there."""
    _flush_tree(complete)
    _exchange(complete, path.absolute())


def write_text_atomic(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 so that a reader sees the old file or the new one, never a part. Raises OSError."""
    partial = _hidden_sibling(path.absolute(), PARTIAL_SUFFIX)
    try:
        with partial.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _flush(path.absolute().parent)


def remove_partial_files(path: Path) -> None:
    """Remove what killed runs left of ``path`` as they wrote its text; the caller keeps other writers of it away."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL_SUFFIX}"):
        if leftover.is_file():
            leftover.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove what killed runs left beside ``path``; a previous version moved aside and not replaced comes back."""
    path = path.absolute()
    for suffix in (RETIRED_SUFFIX, PARTIAL_SUFFIX):
        for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{suffix}"):
            lock = _try_lock(leftover)
            if lock is None:
                continue
            if suffix == RETIRED_SUFFIX and not path.exists():
                leftover.rename(path)
            else:
                shutil.rmtree(leftover, ignore_errors=True)
            os.close(lock)


def is_held(folder: Path) -> bool:
    """Whether the writer of a hidden folder lives; also True where that cannot be told."""
    lock = _try_lock(folder)
    if lock is None:
        return True
    os.close(lock)
    return False


@contextlib.contextmanager
def exclusive(folder: Path, on_wait: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold a folder for this process: others that ask wait, after calling ``on_wait``. File systems without locks are
    used without one.

    Gives the descriptor that carries the lock: a child that inherits it goes on holding the folder after its parent.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not _lock_now(descriptor):
            if on_wait is not None:
                on_wait()
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock_now(descriptor: int) -> bool:
    """False if somebody else holds the lock; a file system without locks counts as locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def digest_sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file, read in chunks of 4 MiB. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _hidden_sibling(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{suffix}")


def _make_locked_folder(path: Path) -> tuple[Path, int]:
    """Between making a folder and locking it, another run may take it for a leftover: then make another one."""
    while True:
        partial = _hidden_sibling(path, PARTIAL_SUFFIX)
        partial.mkdir()
        try:
            descriptor = os.open(partial, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        except OSError:
            return partial, descriptor  # no locks on this file system: then nobody can take it for a leftover either
        if partial.exists():
            return partial, descriptor
        os.close(descriptor)


def _try_lock(folder: Path) -> int | None:
    """Return the descriptor of a folder that nobody holds, None for one that is held or gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _exchange(partial: Path, path: Path) -> None:
    """A rename cannot replace a folder that has files in it, so the previous version steps aside first, locked."""
    if not path.exists():
        partial.rename(path)
        _flush(path.parent)
        return
    lock = _try_lock(path)
    retired = _hidden_sibling(path, RETIRED_SUFFIX)
    path.rename(retired)
    try:
        partial.rename(path)
    except BaseException:
        retired.rename(path)
        raise
    finally:
        if lock is not None:
            os.close(lock)
    _flush(path.parent)
    shutil.rmtree(retired, ignore_errors=True)


def _flush_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            if not file.is_symlink():
                _flush(file)
        _flush(Path(parent))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
