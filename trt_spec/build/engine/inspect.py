"""An engine's own config.json read back and compared with the plan: trtllm-build changes some settings in silence.

Sources: TensorRT-LLM builder.py (lengths and budgets that it raises, FMHA that it switches off) and the record of each
version's build and plugin configuration. Keys that a version does not record are not asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding, Severity
from trt_spec.plan.limits import EngineLimits
from trt_spec.plan.medusa_heads import MEDUSA_ARCHITECTURE, MedusaHeads
from trt_spec.plan.steps import SPECULATIVE_DECODING_MODE
from trt_spec.plan.toolchain import Profile
from trt_spec.plan.trtllm_argv import LOGITS_DTYPE, resolve_dtype
from trt_spec.spec.model import Model, Role

CONFIG_FILE = "config.json"
QUANT_ALGORITHMS = {"none": None, "fp8": "FP8", "fp8_rowwise": "FP8_PER_CHANNEL_PER_TOKEN"}
PAGED = "paged"  # "PAGED" in older versions
_MISSING = "nothing"


@dataclass(frozen=True)
class Expected:
    """What one engine was planned as; ``medusa`` are the heads that it holds."""

    role: Role
    model: Model
    facts: ModelFacts
    limits: EngineLimits
    profile: Profile
    medusa: MedusaHeads | None = None


def inspect_engine(folder: Path, expected: Expected) -> tuple[Finding, ...]:
    """What differs from the plan, in rank files and settings; a refusal means that the engine must not be served."""
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        sections = config["build_config"], config["build_config"]["plugin_config"], config["pretrained_config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"its {CONFIG_FILE} cannot be read ({type(error).__name__})"
        return (Finding("engine-config", "refuse", f"{expected.role}: {reason}.", role=expected.role),)
    build, plugins, pretrained = (section if isinstance(section, Mapping) else {} for section in sections)
    return (
        *_check_version(config, expected),
        *_check_files(folder, expected),
        *_check_speculation(build, expected),
        *_check_medusa(pretrained, expected),
        *_check_limits(build, expected),
        *_check_logits(build, pretrained, expected),
        *_check_attention(build, plugins, expected),
        *_check_model(pretrained, expected),
        *_check_split(pretrained, expected),
    )


def _differ(
    expected: Expected,
    key: str,
    found: Any,
    wanted: Any,
    severity: Severity = "refuse",
    why: str = "",
    remedy: str = "",
) -> Finding:
    shown = _MISSING if found is None and wanted is not None else json.dumps(found)
    reason = f": {why}" if why else ""
    return Finding(
        f"engine-{key.replace('_', '-')}",
        severity,
        f"{expected.role}: the engine says {key} {shown}, planned {json.dumps(wanted)}{reason}.",
        remedy,
        expected.role,
    )


def _check_version(config: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    found, wanted = config.get("version"), expected.profile.version
    if found != wanted:
        yield _differ(
            expected,
            "version",
            found,
            wanted,
            why="a plan loads with the TensorRT that wrote it only",
            remedy=f"Set tensorrt_llm to {json.dumps(found)}, or build with {expected.profile.container}.",
        )


def _check_files(folder: Path, expected: Expected) -> Iterator[Finding]:
    ranks = expected.model.tensor_parallel * expected.model.pipeline_parallel
    wanted = {f"rank{rank}.engine" for rank in range(ranks)}
    found = {path.name: path.stat().st_size for path in folder.glob("rank*.engine")}
    faults = [
        *(f"{name} is missing" for name in sorted(wanted - found.keys())),
        *(f"{name} is not planned" for name in sorted(found.keys() - wanted)),
        *(f"{name} is empty" for name in sorted(wanted & found.keys()) if not found[name]),
    ]
    if faults:
        yield Finding(
            "engine-ranks",
            "refuse",
            f"{expected.role}: of {ranks} rank files {', '.join(faults)}.",
            "Look at the log of the step: a worker probably ended early.",
            expected.role,
        )


def _check_speculation(build: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    drafts = "medusa" if expected.medusa is not None else "draft_tokens_external"
    mode = drafts if expected.limits.max_draft_len else "none"
    wanted = SPECULATIVE_DECODING_MODE[mode]
    if build.get("speculative_decoding_mode") != wanted:
        yield _differ(
            expected,
            "speculative_decoding_mode",
            build.get("speculative_decoding_mode"),
            wanted,
            why=f"{wanted} is {mode}",
        )
    if build.get("max_draft_len") != expected.limits.max_draft_len:
        yield _differ(expected, "max_draft_len", build.get("max_draft_len"), expected.limits.max_draft_len)


def _check_medusa(pretrained: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    """The runtime reads these of the checkpoint's section, not of the build's (gptJsonConfig.cpp)."""
    if expected.medusa is None:
        return
    planned = {
        "architecture": MEDUSA_ARCHITECTURE,
        "max_draft_len": expected.limits.max_draft_len,
        "num_medusa_heads": expected.medusa.count,
        "num_medusa_layers": expected.medusa.layers,
    }
    for key, wanted in planned.items():
        if pretrained.get(key) != wanted:
            why = "the runtime sizes its tree by what the engine says of its checkpoint"
            yield _differ(expected, f"pretrained_{key}", pretrained.get(key), wanted, why=why)


def _check_limits(build: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    """Less than planned is refused, more is told: it takes memory that the plan gave to the KV cache."""
    limits = expected.limits
    planned = {
        "max_batch_size": limits.max_batch_size,
        "max_input_len": limits.max_input_len,
        "max_seq_len": limits.engine_max_seq_len,
        "max_num_tokens": limits.max_num_tokens,
    }
    for key, wanted in planned.items():
        found = build.get(key)
        if found == wanted:
            continue
        if isinstance(found, int) and found > wanted:
            why = "trtllm-build raised it, which costs memory that the plan counted as KV cache"
            yield _differ(
                expected, key, found, wanted, "warn", why, f"Start with fewer tokens of KV cache if {key} hurts."
            )
        else:
            yield _differ(expected, key, found, wanted, why="requests that the spec allows would be refused")
    if build.get("max_beam_width") != limits.max_beam_width:
        yield _differ(expected, "max_beam_width", build.get("max_beam_width"), limits.max_beam_width)


def _check_logits(build: Mapping[str, Any], pretrained: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    gathers, wanted = bool(build.get("gather_generation_logits")), expected.limits.gather_generation_logits
    if gathers != wanted:
        severity: Severity = "refuse" if wanted else "warn"
        why = "acceptance by logits needs them" if wanted else "they cost memory and are not used"
        yield _differ(expected, "gather_generation_logits", gathers, wanted, severity, why)
    if build.get("gather_context_logits"):
        yield _differ(expected, "gather_context_logits", True, False, why="it switches KV cache block reuse off")
    if pretrained.get("logits_dtype") != LOGITS_DTYPE:
        found = pretrained.get("logits_dtype")
        yield _differ(expected, "logits_dtype", found, LOGITS_DTYPE, why="the served models declare it")


def _check_attention(build: Mapping[str, Any], plugins: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    limits, reuse = expected.limits, "without it there is no KV cache block reuse, which draft-target needs"
    if str(build.get("kv_cache_type")).lower() != PAGED:
        yield _differ(expected, "kv_cache_type", build.get("kv_cache_type"), PAGED, why=reuse)
    if plugins.get("paged_kv_cache") is False:  # older versions say it twice, newer ones leave it null
        yield _differ(expected, "paged_kv_cache", False, True, why=reuse)
    if not plugins.get("use_paged_context_fmha"):
        yield _differ(
            expected,
            "use_paged_context_fmha",
            plugins.get("use_paged_context_fmha"),
            True,
            why=f"trtllm-build switches it off for an FP8 cache on unquantised weights; {reuse}",
            remedy="Set kv_cache_dtype to auto, or quantization to fp8.",
        )
    for key in ("remove_input_padding", "context_fmha", "gpt_attention_plugin"):
        if not plugins.get(key):
            yield _differ(expected, key, plugins.get(key), True, why=reuse)
    if plugins.get("tokens_per_block") != limits.tokens_per_block:
        yield _differ(expected, "tokens_per_block", plugins.get("tokens_per_block"), limits.tokens_per_block)
    if bool(plugins.get("use_fp8_context_fmha")) != limits.fp8_context_fmha:
        found = bool(plugins.get("use_fp8_context_fmha"))
        yield _differ(
            expected,
            "use_fp8_context_fmha",
            found,
            limits.fp8_context_fmha,
            "warn",
            "trtllm-build switches it off without FP8 weights or below compute capability 8.9; prompts are read slower",
        )


def _check_model(pretrained: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    facts, model = expected.facts, expected.model
    planned = {
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "num_hidden_layers": facts.layers,
        "dtype": resolve_dtype(model, facts),
    }
    for key, wanted in planned.items():
        if pretrained.get(key) != wanted:
            yield _differ(expected, key, pretrained.get(key), wanted, why="this is another model, or another precision")
    quantization = pretrained.get("quantization")
    found = quantization if isinstance(quantization, Mapping) else {}
    algorithms = {
        "quant_algo": QUANT_ALGORITHMS[model.quantization],
        "kv_cache_quant_algo": "FP8" if model.kv_cache_dtype == "fp8" else None,
    }
    for key, algorithm in algorithms.items():
        if found.get(key) != algorithm:
            yield _differ(expected, key, found.get(key), algorithm)


def _check_split(pretrained: Mapping[str, Any], expected: Expected) -> Iterator[Finding]:
    mapping, model = pretrained.get("mapping"), expected.model
    found = mapping if isinstance(mapping, Mapping) else {}
    planned = {
        "world_size": model.tensor_parallel * model.pipeline_parallel,
        "tp_size": model.tensor_parallel,
        "pp_size": model.pipeline_parallel,
    }
    for key, wanted in planned.items():
        if found.get(key) != wanted:
            yield _differ(expected, key, found.get(key), wanted)
