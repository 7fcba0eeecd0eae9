"""An engine folder checked by itself: what it says of itself, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trt_spec.deploy.check.engine_config import is_tensorrt, section
from trt_spec.deploy.check.engine_files import COPY_AGAIN, Progress, judge_engine
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.deploy.check.reading import read_json_object
from trt_spec.deploy.check.version import resolve_meant
from trt_spec.plan.steps import SPECULATIVE_DECODING_MODE
from trt_spec.plan.toolchain.containers import containers_with, load_containers

_SHOWN_BUILD = ("max_draft_len", "max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "max_beam_width")
_SHOWN_PLUGIN = ("use_paged_context_fmha", "tokens_per_block")


def inspect_engine_folder(
    folder: Path, options: CheckOptions, report: Progress
) -> tuple[dict[str, Any], list[CheckFinding]]:
    """Return what an engine says of itself, and what is wrong with its folder.

    Every byte is read where the build's manifest.json has digests; ``report`` hears of it.
    """
    config, fault = read_json_object(folder / CONFIG_FILE)
    if config is None:
        why = "TensorRT-LLM loads no engine without it"
        what = f"{CONFIG_FILE} {fault}"
        return {}, [CheckFinding("engine-config", "error", CONFIG_FILE, None, what, why, COPY_AGAIN)]
    meant = resolve_meant(options, None)
    findings = [*judge_engine(folder, config, meant, options.compute_capability, report), *_judge_known(config)]
    return describe_engine(config), findings


def _judge_known(config: Mapping[str, Any]) -> Iterator[CheckFinding]:
    version = config.get("version")
    if isinstance(version, str) and is_tensorrt(config) and not containers_with(version):
        yield CheckFinding(
            "engine-version-unknown",
            "warning",
            CONFIG_FILE,
            None,
            f"no recorded Triton container holds TensorRT-LLM {version}",
            "which one can load the engine is not known here",
            f"Serve it from the container that it was built in; the newest recorded one is "
            f"{load_containers()[0].container}.",
        )


def describe_engine(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return version, size and speculation settings of an engine's config.json; what it does not say is left out."""
    build, mapping = section(config, "build_config"), section(config, "pretrained_config", "mapping")
    names: dict[object, str] = {value: name for name, value in SPECULATIVE_DECODING_MODE.items()}
    mode = build.get("speculative_decoding_mode")
    about = {
        "version": config.get("version"),
        "architecture": section(config, "pretrained_config").get("architecture"),
        "dtype": section(config, "pretrained_config").get("dtype"),
        "logits_dtype": section(config, "pretrained_config").get("logits_dtype"),
        "tp_size": mapping.get("tp_size"),
        "pp_size": mapping.get("pp_size"),
        "speculative_decoding_mode": names.get(mode, mode) if isinstance(mode, int | str) else None,
        **{key: build.get(key) for key in _SHOWN_BUILD},
        "kv_cache_type": build.get("kv_cache_type"),
        "gather_generation_logits": build.get("gather_generation_logits"),
        **{key: section(build, "plugin_config").get(key) for key in _SHOWN_PLUGIN},
    }
    return {key: value for key, value in about.items() if isinstance(value, str | int | float)}
