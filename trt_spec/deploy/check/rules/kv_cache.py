"""KV caches: block reuse, which speculation lives on, and pools that hold at least one sequence.

Sources: TensorRT-LLM trtGptModelInflightBatching.cpp (reuse, onboarding and paged context attention) and
kvCacheManager.cpp (whole blocks); tensorrtllm_backend docs/model_config.md and docs/llama_multi_instance.md (unset
budgets).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trt_spec.deploy.check.engine_config import is_tensorrt, whole
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.reading import (
    build_config,
    flag,
    fraction,
    id_lists,
    integer,
    parameter,
    plugin_config,
)
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import (
    ATTENTION_WINDOW,
    DEVICE_IDS,
    ENCODER_PATH,
    ENGINE_PATH,
    KV_FRACTION,
    KV_REUSE,
    KV_TOKENS,
)
from trt_spec.plan.kv_cache import DEFAULT_FRACTION, sequence_tokens

PAGED = "paged"  # "PAGED" in older versions
# Above this share each, the engine that loads second finds next to nothing.
_FAIR_FRACTION = 0.5


def check_reuse(view: RepositoryView) -> Iterator[CheckFinding]:
    """enable_kv_cache_reuse in both models of a pair, and engines that can do it (B054)."""
    roles = resolve_roles(view)
    speculating = {model.name: role for role, model in roles.taking_part()}
    for name, model in roles.engines.items():
        role, reuses = speculating.get(name), flag(model, KV_REUSE)
        if name in speculating and not reuses:
            value = parameter(model, KV_REUSE)
            refuses = "the target refuses to load; " if role == "target" else ""
            yield found_parameter(
                model,
                KV_REUSE,
                "kv-reuse-off",
                "error" if role == "target" else "warning",
                f"{name}: enable_kv_cache_reuse is {'not set, which means false' if value is None else value}",
                f"{refuses}without it the acceptance loop will recompute the prompt each step",
                "Set enable_kv_cache_reuse to true.",
                becomes="true",
            )
        if name in speculating or reuses:
            yield from _check_engine_reuse(view, model)
        yield from _check_onboarding(view, model)


def _check_engine_reuse(view: RepositoryView, model: ModelView) -> Iterator[CheckFinding]:
    engine = view.engines.get(model.name)
    built, plugins = build_config(view, model.name), plugin_config(view, model.name)
    if engine is None or not is_tensorrt(engine.config) or not built:
        return
    faults = [
        (key, plugins.get(key), f"--{key}=enable")
        for key in ("use_paged_context_fmha", "remove_input_padding")
        if not plugins.get(key)
    ]
    kind = built.get("kv_cache_type")
    if kind is not None and str(kind).lower() != PAGED:
        faults.append(("kv_cache_type", kind, "--kv_cache_type=paged"))
    elif plugins.get("paged_kv_cache") is False:  # older versions say it twice
        faults.append(("paged_kv_cache", False, "--kv_cache_type=paged"))
    for key, value, build_flag in faults:
        yield found_parameter(
            model,
            ENGINE_PATH,
            "kv-reuse-engine",
            "error",
            f"{model.name}: its engine was built with {key} {str(value)[:40]}",
            "KV cache block reuse needs a paged cache and paged context attention, and the model does not load with it",
            f"Build the engine with {build_flag}.",
        )


def _check_onboarding(view: RepositoryView, model: ModelView) -> Iterator[CheckFinding]:
    if flag(model, "kv_cache_onboard_blocks") is False and plugin_config(view, model.name).get(
        "use_paged_context_fmha"
    ):
        yield found_parameter(
            model,
            "kv_cache_onboard_blocks",
            "kv-onboarding",
            "error",
            f"{model.name}: kv_cache_onboard_blocks is false, its engine has paged context attention",
            "TensorRT-LLM does not load the two together",
            "Set kv_cache_onboard_blocks to true.",
            becomes="true",
        )


def check_pool(view: RepositoryView) -> Iterator[CheckFinding]:
    """A pool given in tokens must hold one sequence, and an attention window all of it."""
    roles = resolve_roles(view)
    speculating = {model.name for _role, model in roles.taking_part()}
    for name, model in roles.engines.items():
        longest = whole(build_config(view, name), "max_seq_len")
        if longest is None or longest < 1:
            continue
        windows = _windows(model)
        if windows and min(windows) < longest:
            yield found_parameter(
                model,
                ATTENTION_WINDOW,
                "kv-window",
                "warning",
                f"{name}: max_attention_window_size is {min(windows)}, its engine takes sequences of {longest} tokens",
                "tokens further back are not attended to, so long answers change"
                + (", and the cache becomes cyclic, which ends block reuse" if name in speculating else ""),
                f"Set max_attention_window_size to {longest}, or leave it empty.",
            )
        pool, block = integer(model, KV_TOKENS), _block(view, name)
        held = min([longest, max(windows)]) if windows else longest
        needed = sequence_tokens(held, block)
        if pool is not None and math.ceil(pool / block) * block < needed:
            yield found_parameter(
                model,
                KV_TOKENS,
                "kv-pool-too-small",
                "error",
                f"{name}: max_tokens_in_paged_kv_cache is {pool}, one sequence takes {needed} (blocks of {block})",
                "the cache must hold at least one sequence of the engine's max_seq_len",
                f"Set max_tokens_in_paged_kv_cache to {needed} or more, a multiple of it for every sequence in flight.",
            )


def check_cross_attention(view: RepositoryView) -> Iterator[CheckFinding]:
    """A share for cross attention stops a model that has none (trtGptModelInflightBatching.cpp)."""
    for name, model in resolve_roles(view).engines.items():
        share = fraction(model, "cross_kv_cache_fraction")
        if share is not None and parameter(model, ENCODER_PATH) is None:
            yield found_parameter(
                model,
                "cross_kv_cache_fraction",
                "kv-cross-fraction",
                "error",
                f"{name}: cross_kv_cache_fraction is {share:g}, and there is no encoder_model_path",
                "TensorRT-LLM refuses the setting for a decoder-only model",
                "Leave cross_kv_cache_fraction empty.",
            )


def check_shared_gpus(view: RepositoryView) -> Iterator[CheckFinding]:
    """Two engines on one GPU: pools as fractions of free memory depend on which engine loads first."""
    roles = resolve_roles(view)
    for name, model in roles.engines.items():
        sharing = [other for other in roles.engines.values() if other is not model and _share_gpu(model, other)]
        if not sharing or integer(model, KV_TOKENS) is not None:
            continue
        share = fraction(model, KV_FRACTION)
        others = ", ".join(other.name for other in sharing)
        if share is None:
            key, what = (
                KV_TOKENS,
                f"no KV cache size, so it takes {DEFAULT_FRACTION:g} of what is free",
            )
        else:
            key, what = KV_FRACTION, f"kv_cache_free_gpu_mem_fraction is {share:g}"
        is_greedy = (DEFAULT_FRACTION if share is None else share) > _FAIR_FRACTION
        left = "next to nothing may remain" if is_greedy else "so both pools depend on the order"
        yield found_parameter(
            model,
            key,
            "kv-shared-fraction",
            "warning",
            f"{name}: {what}, on GPUs shared with {others}",
            f"it is a share of what the engine that loaded before left: {left}",
            "Give max_tokens_in_paged_kv_cache for both engines: it does not depend on the order of loading.",
        )


def _share_gpu(one: ModelView, other: ModelView) -> bool:
    """Whether two engine models may run on one GPU; one without device ids takes any."""
    devices = [{device for ids in id_lists(model, DEVICE_IDS) or () for device in ids} for model in (one, other)]
    return not devices[0] or not devices[1] or bool(devices[0] & devices[1])


def _windows(model: ModelView) -> list[int]:
    """Attention windows, one a layer in a repeating pattern; none if unset."""
    lists = id_lists(model, ATTENTION_WINDOW)
    return [size for size in lists[0] if size > 0] if lists else []


def _block(view: RepositoryView, name: str) -> int:
    """Tokens of a KV block; ONNX engines have none."""
    size = whole(plugin_config(view, name), "tokens_per_block")
    return size if size is not None and size > 0 else 1


RULES = (check_reuse, check_pool, check_cross_attention, check_shared_gpus)
