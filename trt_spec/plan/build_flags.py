"""``build_flags`` of a spec: extra flags of trtllm-build, and the flags that trtspec decides itself."""

from __future__ import annotations

from collections.abc import Mapping

from trt_spec.plan.finding import Finding
from trt_spec.plan.toolchain import Flag, Profile
from trt_spec.plan.trtllm_flags import judge_flags, judge_values
from trt_spec.spec.model import FlagValue, Role, Spec

_REUSE = "KV cache block reuse, which draft-target needs, depends on it"
_SPLIT = "set {role}.tensor_parallel and {role}.pipeline_parallel"
_PLACE = "the workspace decides, choose it with `-o`"

DERIVED: Mapping[str, str] = {
    "checkpoint_dir": _PLACE,
    "output_dir": _PLACE,
    "model_config": _PLACE,
    "build_config": "its file would replace the planned flags, give the flags one by one",
    "max_batch_size": "set limits.max_batch_size",
    "max_input_len": "set limits.max_input_len",
    "max_seq_len": "set limits.max_input_len and limits.max_output_len",
    "max_output_len": "set limits.max_output_len",
    "max_num_tokens": "set limits.max_batch_size, limits.max_input_len and limits.max_output_len, which decide it",
    "max_beam_width": "speculative decoding works with 1 alone",
    "kv_cache_type": _REUSE,
    "paged_kv_cache": _REUSE,
    "remove_input_padding": _REUSE,
    "gpt_attention_plugin": _REUSE,
    "context_fmha": _REUSE,
    "use_paged_context_fmha": _REUSE,
    "tokens_per_block": "the memory is planned in blocks of this version's size",
    "use_fp8_context_fmha": "set {role}.kv_cache_dtype, and {role}.quantization fp8 with it",
    "speculative_decoding_mode": "set speculation.mode",
    "max_draft_len": "set speculation.max_draft_len",
    "gather_generation_logits": "set speculation.accept",
    "gather_all_token_logits": "set speculation.accept",
    "gather_context_logits": "it would switch KV cache block reuse off",
    "logits_dtype": "the served models declare float32 logits",
    "auto_parallel": _SPLIT,
    "gpus_per_node": "set hardware.gpus",
    "cluster_key": "set hardware.gpu",
    "tp_size": _SPLIT,
    "pp_size": _SPLIT,
    "dry_run": "it would leave no engine, use `trtspec build --dry-run`",
    "strip_plan": "an engine without weights cannot be served",
}
"""Flags, by destination, that follow from the spec, and what to do instead; some exist in older versions only."""


def judge_build_flags(spec: Spec, role: Role, profile: Profile) -> tuple[Finding, ...]:
    """What is wrong with ``build_flags`` of a role for the profile's version; every finding refuses the build."""
    findings: list[Finding] = []
    for name, value in spec.build_flags.get(role, {}).items():
        flag = profile.find_flag(f"--{name}")
        dest = name if flag is None else flag.dest
        where = f"build_flags.{role}.{name}"
        if dest in DERIVED:
            findings.append(
                _refuse("derived", role, f"{where}: trtspec decides this flag.", DERIVED[dest].format(role=role))
            )
        elif flag is None:
            (fault,) = judge_flags(("trtllm-build", f"--{name}"), profile)
            findings.append(_refuse("unknown", role, f"{where}: {fault.message}", fault.remedy.replace("--", "")))
        elif message := _judge_value(flag, value):
            findings.append(
                _refuse("value", role, f"{where} of TensorRT-LLM {profile.version} {message}.", "Change the value.")
            )
    return tuple(findings)


def _refuse(kind: str, role: Role, message: str, remedy: str) -> Finding:
    sentence = remedy[:1].upper() + remedy[1:]
    if sentence and sentence[-1] not in ".?":
        sentence += "."
    return Finding(f"build-flag-{kind}", "refuse", message, sentence, role)


def _judge_value(flag: Flag, value: FlagValue) -> str | None:
    if flag.type == "switch":
        return None if isinstance(value, bool) else f"is a switch and expects true or false, found {value!r}"
    if isinstance(value, bool) and not _is_toggle(flag):
        return f"expects {_expected(flag)}, found {str(value).lower()}"
    return judge_values(flag, render_values(flag, value))


def _expected(flag: Flag) -> str:
    return f"one of {', '.join(flag.choices)}" if flag.choices else "a whole number" if flag.type == "int" else "text"


def _is_toggle(flag: Flag) -> bool:
    return flag.choices is not None and set(flag.choices) == {"enable", "disable"}


def render_values(flag: Flag, value: FlagValue) -> tuple[str, ...]:
    """A spec's value as words of the command line; true and false become enable and disable, lists are split at spaces.

    A switch has no words.
    """
    if flag.type == "switch":
        return ()
    if isinstance(value, bool):
        return ("enable" if value else "disable",)
    return tuple(str(value).split()) if flag.nargs == "+" else (str(value),)
