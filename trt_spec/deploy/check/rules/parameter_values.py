"""Values of parameters, as the code that reads them takes them: the C++ backend, and NVIDIA's Python models.

Sources: tensorrtllm_backend v0.17.0 and v0.19.0, inflight_batcher_llm/src/model_state.cc (std::stoi, std::stof, words
of a bool) and model_instance_state.cc (what does not parse is unset, with a line in the log at most), and
all_models/inflight_batcher_llm/*/1/model.py; TensorRT-LLM executor/kvCacheConfig.cpp and executorConfig.cpp (ranges).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.kinds import ModelKind, find_dialect_name, find_kind, is_ours
from trt_spec.deploy.check.rules.reading import (
    FLAGS,
    INT32,
    INT64,
    UINT32,
    parameter,
    read_fraction,
    read_integer,
)
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import (
    ATTENTION_WINDOW,
    FAST_LOGITS,
    KV_FRACTION,
    KV_REUSE,
    KV_TOKENS,
    PYTHON_BACKEND,
)

_SHOWN_CHARACTERS = 60
Judge = Callable[[float], bool]


@dataclass(frozen=True)
class Number:
    """A number read from the beginning of the text, whatever follows. ``span`` is what the type holds, None a float."""

    expected: str
    span: tuple[int, int] | None = INT32
    is_taken: Judge = lambda value: True


@dataclass(frozen=True)
class Words:
    """One of some words; any other counts as not given. ``ignores_case`` in Python."""

    words: tuple[str, ...]
    ignores_case: bool = False


_ANY = Number("a whole number")
_POSITIVE = Number("a whole number of at least 1", is_taken=lambda value: value > 0)
_COUNT = Number("a whole number of at least 0", is_taken=lambda value: value >= 0)
_BYTES = Number("a whole number of bytes, in digits", INT64, lambda value: value >= 0)
_LENGTH = Number("a whole number of at least 0", UINT32, lambda value: value >= 0)
_SHARE = Number("a number between 0 and 1", None, lambda value: 0 < value < 1)
_FLOAT = Number("a number", None, lambda value: abs(value) < float("inf"))
_FLAG = Words(tuple(FLAGS))
_PYTHON_FLAG = Words(("true", "false", "1", "0", "t", "f", "y", "n", "yes", "no"), ignores_case=True)

ENGINE: Mapping[str, Number | Words] = {
    "max_beam_width": _POSITIVE,
    KV_TOKENS: _POSITIVE,
    "sink_token_length": _POSITIVE,
    KV_FRACTION: _SHARE,
    "cross_kv_cache_fraction": _SHARE,
    "kv_cache_host_memory_bytes": _BYTES,
    "iter_stats_max_iterations": _COUNT,
    "request_stats_max_iterations": _COUNT,
    "cancellation_check_period_ms": _ANY,
    "stats_check_period_ms": _ANY,
    "recv_poll_period_ms": _ANY,
    "num_nodes": _ANY,
    "cuda_graph_cache_size": _ANY,
    "lora_cache_optimal_adapter_size": _ANY,
    "lora_cache_max_adapter_size": _ANY,
    "lora_cache_gpu_memory_fraction": _FLOAT,
    "lora_cache_host_memory_bytes": _BYTES,
    "gpu_weights_percent": _FLOAT,
    "lookahead_window_size": _LENGTH,
    "lookahead_ngram_size": _LENGTH,
    "lookahead_verification_set_size": _LENGTH,
    **dict.fromkeys(
        (
            KV_REUSE,
            FAST_LOGITS,
            "kv_cache_onboard_blocks",
            "exclude_input_in_output",
            "enable_chunked_context",
            "normalize_log_probs",
            "enable_context_fmha_fp32_acc",
            "multi_block_mode",
            "cuda_graph_mode",
        ),
        _FLAG,
    ),
    "batch_scheduler_policy": Words(("max_utilization", "guaranteed_no_evict")),
    "decoding_mode": Words(
        ("top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle")
    ),
}
"""How the C++ backend reads each parameter of an engine's model; ids of ranks and GPUs belong to the placement."""

PYTHON: Mapping[ModelKind, Mapping[str, Words]] = {
    "orchestrator": {"accumulate_tokens": _PYTHON_FLAG},
    "preprocessing": {"add_special_tokens": _PYTHON_FLAG},
    "postprocessing": {"skip_special_tokens": _PYTHON_FLAG},
}


def check_values(view: RepositoryView) -> Iterator[CheckFinding]:
    """Values that their reader refuses, takes for something else, or passes over."""
    for model in view.models.values():
        kind = find_kind(model)
        if model.config is None or (kind != "engine" and is_ours(model)):
            continue
        template = view.dialect.models.get(find_dialect_name(model) or "")
        documented = template.parameters if template else {}
        readings: Mapping[str, Number | Words] = PYTHON.get(kind, {})
        if kind == "engine" and model.config.backend != PYTHON_BACKEND:
            readings = ENGINE
            yield from _check_windows(model, documented.get(ATTENTION_WINDOW))
        for key, reading in readings.items():
            value = parameter(model, key)
            if value is None:
                continue
            if isinstance(reading, Words):
                yield from _check_words(model, key, value, reading)
            elif (finding := _check_number(model, key, value, reading, documented.get(key))) is not None:
                yield finding


def _check_words(model: ModelView, key: str, value: str, reading: Words) -> Iterator[CheckFinding]:
    if (value.lower() if reading.ignores_case else value) not in reading.words:
        yield _unread(model, key, value, f"one of {', '.join(reading.words)}")


def _check_number(
    model: ModelView, key: str, value: str, reading: Number, documented: str | None
) -> CheckFinding | None:
    read = read_fraction(value) if reading.span is None else read_integer(value, reading.span)
    if read is None:
        # Words that NVIDIA documents as a default mean just that.
        return None if value == documented else _unread(model, key, value, reading.expected)
    if not reading.is_taken(read):
        return _refused(model, key, value, "is refused or misread", reading.expected)
    if read != _written(value):
        severe = value != documented
        return _refused(model, key, value, f"is read as {read:.10g}", reading.expected, is_error=severe)
    return None


def _check_windows(model: ModelView, documented: str | None) -> Iterator[CheckFinding]:
    """Numbers separated by commas, each of them a window."""
    value, expected = parameter(model, ATTENTION_WINDOW), "whole numbers of at least 1, separated by commas"
    if value is None or value == documented:
        return
    read = [read_integer(word, INT32) for word in value.split(",")]
    if None in read:
        yield _unread(model, ATTENTION_WINDOW, value, expected)
    elif any(number is not None and number < 1 for number in read):
        yield _refused(model, ATTENTION_WINDOW, value, "is refused", expected)


def _written(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _unread(model: ModelView, key: str, value: str, expected: str) -> CheckFinding:
    return found_parameter(
        model,
        key,
        "parameter-unread",
        "warning",
        f"{model.name}: {key} is {_shown(value)}, expected {expected}",
        "what cannot be read counts as not set: the default is taken, and a line in the log at most tells of it",
        f"Set {key} to {expected}, or leave it empty.",
    )


def _refused(model: ModelView, key: str, value: str, how: str, expected: str, *, is_error: bool = True) -> CheckFinding:
    return found_parameter(
        model,
        key,
        "parameter-value",
        "error" if is_error else "warning",
        f"{model.name}: {key} is {_shown(value)}, which {how}; expected {expected}",
        "the backend reads a number as far as it goes and ignores the rest, and some numbers keep it from loading",
        f"Set {key} to {expected}.",
    )


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}...")


RULES = (check_values,)
