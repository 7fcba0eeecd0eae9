"""How the PyTorch path of TensorRT-LLM spells speculative decoding, by version; the data is llmapi_dialect.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.plan.finding import Finding
from trt_spec.plan.toolchain.profile import version_key

DATA_PATH = Path(__file__).with_name("llmapi_dialect.json")


@dataclass(frozen=True)
class LlmapiDialect:
    """Names in YAML from version ``since`` on. ``decoding_types`` maps modes of a spec to ``decoding_type``.

    ``block_reuse_off`` are the modes that NVIDIA runs without reuse of KV blocks. ``trust`` says how sure the names
    are, ``source`` where they were read.
    """

    since: str
    decoding_types: Mapping[str, str]
    draft_field: str
    mtp_length_field: str
    config_flag: str
    block_reuse_off: tuple[str, ...]
    trust: str
    source: str


def load_llmapi_dialect(tensorrt_llm: str) -> LlmapiDialect:
    """The dialect of a TensorRT-LLM version, the newest that is not newer. Raises SpecError for one before 1.0."""
    # A candidate of a version is judged as that version: 1.2.0rc6 has the fields of 1.2.0, as far as is known.
    known = [dialect for dialect in load_llmapi_dialects() if _is_at_least(tensorrt_llm, dialect.since)]
    if not known:
        raise SpecError(
            f"TensorRT-LLM {tensorrt_llm} has no PyTorch path that trtspec writes for.",
            remedy="Set tensorrt_llm to 1.0.0 or newer.",
        )
    return known[-1]


@functools.cache
def load_llmapi_dialects() -> tuple[LlmapiDialect, ...]:
    """All dialects, the oldest first."""
    return tuple(
        LlmapiDialect(**{**row, "block_reuse_off": tuple(row["block_reuse_off"])}) for row in _load_data()["dialects"]
    )


def judge_known_troubles(tensorrt_llm: str) -> tuple[Finding, ...]:
    """What is reported of Triton's LLM API model with this TensorRT-LLM version."""
    return tuple(
        Finding(row["code"], "warn", f"{row['message']} ({row['source']})", row["remedy"])
        for row in _load_data()["notices"]
        if _is_at_least(tensorrt_llm, row["since"]) and not _is_at_least(tensorrt_llm, row["before"])
    )


def _is_at_least(version: str, since: str) -> bool:
    if "rc" in since:
        return version_key(version) >= version_key(since)
    return version_key(version)[:3] >= version_key(since)[:3]


@functools.cache
def _load_data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(DATA_PATH.read_text(encoding="utf-8"))
    return data
