"""Files of strangers, read without trust: any size, any kind, any bytes, and never a wait."""

from __future__ import annotations

import enum
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.util.text import printable

MAX_CONFIG_BYTES = 1 << 20  # NVIDIA's largest config.pbtxt has 25 KB
MAX_JSON_BYTES = 16 << 20


class FaultKind(enum.Enum):
    """Why something cannot be read."""

    MISSING = "missing"
    REFUSED = "refused"  # by the operating system: permissions, circles of links
    SPECIAL = "special"  # there, and no file or folder as it should be
    CONTENT = "content"  # read, and not what it should be


@dataclass(frozen=True)
class ReadFault:
    """Why something cannot be read; ``says`` continues a sentence that begins with its name."""

    kind: FaultKind
    says: str

    def __str__(self) -> str:
        return self.says


def read_text(path: Path, limit_bytes: int) -> tuple[str, ReadFault | None]:
    """Return the text of a regular UTF-8 file, or "" and why it cannot be read; a FIFO or socket never blocks.

    ``limit_bytes`` bounds what is read: a longer file is a fault.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        return "", _reason(error)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return "", ReadFault(FaultKind.SPECIAL, "is no regular file")
        if about.st_size > limit_bytes:
            return "", _too_long(about.st_size, limit_bytes)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        return "", _reason(error)
    finally:
        os.close(descriptor)
    if len(data) > limit_bytes:
        return "", _too_long(len(data), limit_bytes)
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return "", ReadFault(FaultKind.CONTENT, f"is not UTF-8 text (byte {error.start}, line {line})")


def read_json_object(path: Path) -> tuple[dict[str, Any] | None, ReadFault | None]:
    """Return the object of a JSON file, or None and why there is none."""
    text, fault = read_text(path, MAX_JSON_BYTES)
    if fault:
        return None, fault
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        says = f"is not JSON ({error})" if isinstance(error, ValueError) else "is nested too deeply"
        return None, ReadFault(FaultKind.CONTENT, says)
    if not isinstance(document, dict):
        return None, ReadFault(FaultKind.CONTENT, "holds no JSON object")
    return document, None


def list_folder(folder: Path) -> tuple[list[os.DirEntry[str]], ReadFault | None]:
    """Return the entries of a folder by name, and why they cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name), None
    except (OSError, ValueError) as error:
        return [], _reason(error)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or leads to one; a link that leads nowhere or in a circle is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def shown(name: str) -> str:
    """Return a file's name as text that can be printed and encoded: foreign bytes and control characters escaped."""
    return printable(os.fsencode(name).decode("utf-8", errors="backslashreplace"))


def size_of(path: Path) -> int | None:
    """Return the bytes of a regular file, None where there is none or it cannot be looked at."""
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        return None


def _too_long(found_bytes: int, limit_bytes: int) -> ReadFault:
    return ReadFault(FaultKind.CONTENT, f"has {found_bytes} bytes, more than the {limit_bytes} that are read")


def _reason(error: OSError | ValueError) -> ReadFault:
    if isinstance(error, FileNotFoundError):
        return ReadFault(FaultKind.MISSING, "does not exist")
    if isinstance(error, OSError):
        return ReadFault(FaultKind.REFUSED, f"cannot be read ({error.strerror})")
    return ReadFault(FaultKind.MISSING, "has an impossible name")
