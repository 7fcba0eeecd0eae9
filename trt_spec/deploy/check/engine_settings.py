"""build_config of a TensorRT engine: numbers and the mode that no build can have left there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trt_spec.deploy.check.engine_config import section, whole
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.plan.steps import SPECULATIVE_DECODING_MODE

_BUILD = "build_config"
_MODE = "speculative_decoding_mode"
_SIZES = {
    "max_batch_size": 1,
    "max_beam_width": 1,
    "max_input_len": 1,
    "max_seq_len": 1,
    "max_num_tokens": 1,
    "max_draft_len": 0,
}
_SHOWN_CHARACTERS = 60
_WHY = "TensorRT-LLM reads the limits of the engine from it, and checks of batch, lengths and speculation need them"
_REMEDY = "Copy config.json of the build again, or build the engine again."


def judge_settings(config: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Judge the limits and the speculation that a config.json states; what it leaves out is not missed."""
    build = config.get(_BUILD)
    if not isinstance(build, Mapping):
        state = f"is {_shown(build)}" if _BUILD in config else "is missing"
        yield _found(f"{_BUILD} {state}, expected an object")
        return
    if not isinstance(config.get("pretrained_config"), Mapping):
        yield _found("pretrained_config is missing or no object")
    for key, least in _SIZES.items():
        value = build.get(key)
        if value is not None and (whole(build, key) is None or value < least):
            yield _found(f"{_BUILD}.{key} is {_shown(value)}, expected a whole number of at least {least}")
    mode = build.get(_MODE)
    if mode is not None and not _is_mode(mode):
        yield _found(f"{_BUILD}.{_MODE} is {_shown(mode)}, expected a name, or a power of two such as 1 (none)")
    drafts = whole(build, "max_draft_len")
    if whole(build, _MODE) == SPECULATIVE_DECODING_MODE["draft_tokens_external"] and drafts == 0:
        yield _found(f"{_BUILD}.{_MODE} is 2 (draft_tokens_external), and max_draft_len is 0")
    plugins = build.get("plugin_config")
    if plugins is not None and plugins != section(build, "plugin_config"):
        yield _found(f"{_BUILD}.plugin_config is {_shown(plugins)}, expected an object")


def _is_mode(value: object) -> bool:
    """Modes are flags, one bit each, or their names (TensorRT-LLM, SpeculativeDecodingMode)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value > 0 and value & (value - 1) == 0
    return isinstance(value, str) and value != ""


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _found(what: str) -> CheckFinding:
    return CheckFinding("engine-settings", "error", CONFIG_FILE, None, what, _WHY, _REMEDY)
