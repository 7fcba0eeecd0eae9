"""Files of strangers, read without trust: any size, any kind, any bytes, and never a wait."""

from __future__ import annotations

import contextlib
import enum
import errno
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.util.text import printable

MAX_CONFIG_BYTES = 1 << 20  # NVIDIA's largest config.pbtxt has 25 KB
MAX_QUOTED = 120  # characters of a line or a value
MAX_JSON_BYTES = 16 << 20


class FaultKind(enum.Enum):
    """Why something cannot be read."""

    MISSING = "missing"
    REFUSED = "refused"  # by the operating system: permissions
    SPECIAL = "special"  # there, and no file or folder as it should be: a FIFO, a circle of links
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


def read_json_object(path: Path, limit_bytes: int = MAX_JSON_BYTES) -> tuple[dict[str, Any] | None, ReadFault | None]:
    """Return the object of a JSON file, or None and why there is none."""
    text, fault = read_text(path, limit_bytes)
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


def look_at(path: Path) -> tuple[int, ReadFault | None]:
    """Return the mode of what a path leads to, or 0 and why it cannot be looked at; never raises."""
    try:
        return path.stat().st_mode, None
    except (OSError, ValueError) as error:
        return 0, _reason(error)


def is_file_at(path: Path) -> bool:
    """Whether a path leads to a regular file that can be looked at."""
    return stat.S_ISREG(look_at(path)[0])


def is_folder_at(path: Path) -> bool:
    """Whether a path leads to a folder that can be looked at."""
    return stat.S_ISDIR(look_at(path)[0])


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or leads to one; a link that leads nowhere or in a circle is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def shown(name: str) -> str:
    """Return a file's name as text that can be printed and encoded: foreign bytes and control characters escaped."""
    with contextlib.suppress(UnicodeEncodeError):  # where it is no file's name, but a text in a JSON file
        name = os.fsencode(name).decode("utf-8", errors="backslashreplace")
    return printable(name)


def shorten(text: str, most: int = MAX_QUOTED) -> str:
    """Return a text with its middle left out if it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]} ... {text[-most // 3 :]}"


def size_of(path: Path) -> int | None:
    """Return the bytes of a regular file, None where there is none or it cannot be looked at."""
    try:
        about = path.stat()
    except (OSError, ValueError):
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None


def _too_long(found_bytes: int, limit_bytes: int) -> ReadFault:
    return ReadFault(FaultKind.CONTENT, f"has {found_bytes} bytes, more than the {limit_bytes} that are read")


def _reason(error: OSError | ValueError) -> ReadFault:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ReadFault(FaultKind.MISSING, "does not exist")
    if isinstance(error, OSError):
        kind = FaultKind.SPECIAL if error.errno == errno.ELOOP else FaultKind.REFUSED
        return ReadFault(kind, f"cannot be read ({error.strerror})")
    return ReadFault(FaultKind.MISSING, "has an impossible name")
