"""Files of strangers, read without trust: any size, any kind, any bytes, and never a wait."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

MAX_CONFIG_BYTES = 1 << 20  # NVIDIA's largest config.pbtxt has 25 KB
MAX_JSON_BYTES = 16 << 20


def read_text(path: Path, limit_bytes: int) -> tuple[str, str]:
    """Return the text of a regular UTF-8 file and "", or "" and why it cannot be read; a FIFO or socket never blocks.

    ``limit_bytes`` bounds what is read: a longer file is a fault.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        return "", _reason(error)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return "", "is no regular file"
        if about.st_size > limit_bytes:
            return "", f"has {about.st_size} bytes, more than the {limit_bytes} that are read"
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        return "", _reason(error)
    finally:
        os.close(descriptor)
    if len(data) > limit_bytes:
        return "", f"has more than the {limit_bytes} bytes that are read"
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return "", f"is not UTF-8 text (byte {error.start}, line {line})"


def read_json_object(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the object of a JSON file and "", or None and why there is none."""
    text, fault = read_text(path, MAX_JSON_BYTES)
    if fault:
        return None, fault
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON ({error})" if isinstance(error, ValueError) else "is nested too deeply"
    return (document, "") if isinstance(document, dict) else (None, "holds no JSON object")


def list_folder(folder: Path) -> tuple[list[os.DirEntry[str]], str]:
    """Return the entries of a folder by name, and "" or why they cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name), ""
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
    text = os.fsencode(name).decode("utf-8", errors="backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    return f"cannot be read ({error.strerror})" if isinstance(error, OSError) else "has an impossible name"
