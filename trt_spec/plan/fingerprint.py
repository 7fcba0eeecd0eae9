"""What a step's output depends on, as one digest: an output with the same fingerprint need not be made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def resolve_fingerprint(
    kind: str, params: Mapping[str, Any], inputs: Mapping[str, str], tools: Mapping[str, str]
) -> str:
    """sha256 over the step's kind, its parameters, the digests of its input files and the versions of its tools."""
    content = {"kind": kind, "params": dict(params), "inputs": dict(inputs), "tools": dict(tools)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()
