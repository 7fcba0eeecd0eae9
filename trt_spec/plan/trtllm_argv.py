"""Command lines of the engine pipeline: fetch, convert or quantise, trtllm-build. Pure; nothing is run here.

NVIDIA's flag names appear in this module and in the recorded data alone. Every flag whose default changed between the
supported versions is given explicitly, and with them those that the plan's figures rest on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trt_spec.errors import SpecError
from trt_spec.plan.build_flags import judge_build_flags, render_values
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.steps import engine_mode
from trt_spec.plan.toolchain import Profile
from trt_spec.plan.trtllm_flags import check_flags
from trt_spec.spec.model import Model, Role, Spec

if TYPE_CHECKING:
    from trt_spec.plan.limits import EngineLimits

CALIBRATION_SAMPLES = 512  # as in NVIDIA's published 405B and 70B figures; quantize.py's own default, too
LOGITS_DTYPE = "float32"  # what the served models declare
TIMING_CACHE = "model.cache"  # trtllm-build would write it to the current folder, where two builds would race

EngineFlags = dict[str, tuple[str, ...]]
"""Flags of trtllm-build by destination, with their values as words; a switch has none."""


def resolve_dtype(model: Model, facts: ModelFacts) -> str:
    """The data type of unquantised weights and activations, as torch spells it.

    ``auto`` is the checkpoint's own; a float32 checkpoint becomes float16, as in NVIDIA's converters (infer_dtype).
    """
    dtype = facts.dtype if model.dtype == "auto" else model.dtype
    return "float16" if dtype == "float32" else dtype


def fetch_argv(model: Model, output_dir: Path) -> tuple[str, ...]:
    """The download of a hub model by Hugging Face's own tool, which resumes; it reads the token from its login."""
    revision = () if model.revision is None else ("--revision", model.revision)
    # Meta's repositories hold the weights a second time, in this folder.
    return ("hf", "download", model.model, *revision, "--exclude", "original/*", "--local-dir", str(output_dir))


def convert_argv(
    model: Model,
    facts: ModelFacts,
    profile: Profile,
    source: str,
    output_dir: Path,
    medusa: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """trtspec's own converter, from the checkpoint ``source`` (a folder, or the demo model's reference).

    ``medusa`` are the words of ``medusa_argv``.
    """
    kv_cache = () if model.kv_cache_dtype == "auto" else ("--kv-cache-dtype", model.kv_cache_dtype)
    return (
        *("trtspec", "convert", source, "-o", str(output_dir)),
        *("--tp", str(model.tensor_parallel), "--pp", str(model.pipeline_parallel)),
        *("--dtype", resolve_dtype(model, facts), "--quantization", model.quantization),
        *kv_cache,
        *medusa,
        *("--tensorrt-llm", profile.version),
    )


def medusa_argv(heads: str | None, max_draft_len: int) -> tuple[str, ...]:
    """What makes the converter write a Medusa checkpoint; ``heads`` None if the source holds them itself."""
    named = () if heads is None else ("--medusa-heads", heads)
    return (*named, "--medusa-draft-len", str(max_draft_len))


def quantize_argv(model: Model, facts: ModelFacts, profile: Profile, source: str, output_dir: Path) -> tuple[str, ...]:
    """NVIDIA's post-training quantisation of an unquantised checkpoint to FP8, which writes a TensorRT-LLM checkpoint.

    Recorded in NVIDIA's instructions: all flags but ``--pp_size``, which was read in the script of other commits.
    """
    kv_cache = () if model.kv_cache_dtype == "auto" else ("--kv_cache_dtype", model.kv_cache_dtype)
    return (
        *("python3", profile.quantizer_path, "--model_dir", source, "--dtype", resolve_dtype(model, facts)),
        *("--qformat", "fp8", *kv_cache, "--calib_size", str(CALIBRATION_SAMPLES), "--output_dir", str(output_dir)),
        *("--tp_size", str(model.tensor_parallel), "--pp_size", str(model.pipeline_parallel)),
    )


def build_argv(
    spec: Spec,
    role: Role,
    limits: EngineLimits,
    facts: ModelFacts,
    profile: Profile,
    checkpoint_dir: Path,
    output_dir: Path,
) -> tuple[str, ...]:
    """trtllm-build for one engine of the pair, checked against the version's recorded flags.

    Raises SpecError for ``build_flags`` that this version does not take or that trtspec decides.
    """
    flags: EngineFlags = {
        "checkpoint_dir": (str(checkpoint_dir),),
        "output_dir": (str(output_dir),),
        **plan_engine_flags(spec, role, limits, facts, profile),
    }
    flags.setdefault("output_timing_cache", (str(output_dir / TIMING_CACHE),))
    argv = (
        "trtllm-build",
        *(word for dest, values in flags.items() for word in (profile.flags[dest].names[0], *values)),
    )
    check_flags(argv, profile)
    return argv


def plan_engine_flags(spec: Spec, role: Role, limits: EngineLimits, facts: ModelFacts, profile: Profile) -> EngineFlags:
    """Every flag that decides what the engine is; ``build_flags`` of the spec come last or replace a flag in place.

    Raises SpecError for the first of them that ``judge_build_flags`` refuses.
    """
    for finding in judge_build_flags(spec, role, profile):
        raise SpecError(finding.message, remedy=finding.remedy)
    model = spec.models()[role]
    flags: EngineFlags = {
        "max_batch_size": (str(limits.max_batch_size),),
        "max_beam_width": (str(limits.max_beam_width),),
        "max_input_len": (str(limits.max_input_len),),
        "max_seq_len": (str(limits.max_seq_len),),
        "max_num_tokens": (str(limits.max_num_tokens),),
        "kv_cache_type": ("paged",),
        "tokens_per_block": (str(limits.tokens_per_block),),
        "remove_input_padding": ("enable",),
        "context_fmha": ("enable",),
        "use_paged_context_fmha": (_toggle(limits.paged_context_fmha),),
        "use_fp8_context_fmha": (_toggle(limits.fp8_context_fmha),),
        "gpt_attention_plugin": ("auto",),
        "gemm_plugin": (_gemm_plugin(model, facts),),
        "logits_dtype": (LOGITS_DTYPE,),
    }
    if limits.max_draft_len:
        flags["speculative_decoding_mode"] = (engine_mode(spec, limits.max_draft_len),)
        flags["max_draft_len"] = (str(limits.max_draft_len),)
    if limits.gather_generation_logits:
        flags["gather_generation_logits"] = ()
    flags["workers"] = (str(_workers(spec, model)),)
    for name, value in spec.build_flags.get(role, {}).items():
        flag = profile.find_flag(f"--{name}")
        assert flag is not None  # checked above
        if value is False and flag.type == "switch":
            flags.pop(flag.dest, None)
        else:
            flags[flag.dest] = render_values(flag, value)
    return flags


def _toggle(on: bool) -> str:
    return "enable" if on else "disable"


def _gemm_plugin(model: Model, facts: ModelFacts) -> str:
    """NVIDIA's advice (TensorRT-LLM, perf-best-practices): on for FP16 and BF16, off for FP8.

    Row-wise FP8 matrices have a plugin of their own, which the builder switches on; this one serves the others.
    """
    return "disable" if model.quantization == "fp8" else resolve_dtype(model, facts)


def _workers(spec: Spec, model: Model) -> int:
    """One builder process for each rank, each on a GPU of its own; trtllm-build runs on one node."""
    ranks = model.tensor_parallel * model.pipeline_parallel
    return ranks if spec.hardware is None else min(ranks, spec.hardware.gpus)
