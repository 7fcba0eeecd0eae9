"""Digests of input files, remembered by size, modification time and inode so that an unchanged build stays quick."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from trt_spec.util.files import digest_sha256, write_text_atomic

DIGESTS_FILE = "digests.json"


def load_digests(
    files: Iterable[Path], cache_dir: Path, on_read: Callable[[Path], None] = lambda _file: None
) -> dict[str, str]:
    """sha256 by file name; a file whose path, size, modification time and inode are known is not read again.

    ``on_read`` is told of each file that is read: hundreds of gigabytes take minutes.
    """
    remembered_at = cache_dir / DIGESTS_FILE
    remembered = _load(remembered_at)
    digests, changed = {}, False
    for file in files:
        status = file.stat()
        key = f"{file.absolute()}:{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
        if key not in remembered:
            on_read(file)
            remembered[key] = digest_sha256(file)
            changed = True
        digests[file.name] = remembered[key]
    if changed:
        cache_dir.mkdir(parents=True, exist_ok=True)
        write_text_atomic(remembered_at, json.dumps(remembered, indent=0))
    return digests


def _load(path: Path) -> dict[str, str]:
    """What is remembered; a damaged memory is only forgotten."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
