"""Profiles of releases between the recorded ones, on request: container facts of their own, the rest borrowed."""

from __future__ import annotations

import functools
from dataclasses import replace

from trt_spec.errors import SpecError
from trt_spec.plan.finding import Finding
from trt_spec.plan.toolchain.containers import containers_with
from trt_spec.plan.toolchain.profile import Profile, load_profile, version_key
from trt_spec.spec.rules import SUPPORTED_TENSORRT_LLM

# From 1.0 on trtllm-build has the flags and defaults of 1.2 (and some of automatic parallelism, which is never used).
_NEWEST_FROM = "1.0.0"
# The converter's choice (build/checkpoint/dialect.py): older checkpoints load everywhere below it, newer ones may not.
_NEWEST_CHECKPOINT_FROM = "1.2.0"


@functools.cache
def resolve_profile(version: str, accept_derived: bool = False) -> Profile:
    """The profile of a version; with ``accept_derived`` also of a release between two profiles that has a container.

    Raises SpecError as ``load_profile`` does, and for a release without a recorded container.
    """
    if version in SUPPORTED_TENSORRT_LLM or not accept_derived or not _is_between(version):
        return load_profile(version)
    rows = containers_with(version)
    if not rows:
        raise SpecError(
            f"TensorRT-LLM {version} has no recorded container, so its TensorRT and CUDA are not known.",
            remedy=f"Set tensorrt_llm to one of the three profiles: {', '.join(SUPPORTED_TENSORRT_LLM)}.",
        )
    base, container = load_profile(_neighbour(version)), rows[0]
    is_old = version_key(version) < version_key(_NEWEST_CHECKPOINT_FROM)
    dialect = load_profile(SUPPORTED_TENSORRT_LLM[0]).dialect if is_old else base.dialect
    borrowed = f"borrowed from {base.version}, not recorded for {version}"
    return replace(
        base,
        version=version,
        container=container.container,
        triton=container.triton,
        tensorrt=container.tensorrt,
        cuda=container.cuda,
        driver=container.driver,
        dialect=dialect,
        trust={name: trust if name in ("container", "min_driver") else borrowed for name, trust in base.trust.items()},
        flags_trust=borrowed,
        flags_status=borrowed,
        not_recorded=(
            f"flags of trtllm-build, their choices and defaults ({base.version}'s)",
            f"checkpoint format ({dialect}'s)",
            f"templates of the Triton models ({base.template_dialect}'s)",
            f"paths in the container and flags of quantize.py ({base.version}'s)",
        ),
    )


def judge_derived(profile: Profile) -> tuple[Finding, ...]:
    """A warning that names everything a derived profile borrows; nothing for a recorded one."""
    if not profile.not_recorded:
        return ()
    return (
        Finding(
            "toolchain-derived",
            "warn",
            f"TensorRT-LLM {profile.version} has no profile of its own; not recorded: "
            f"{'; '.join(profile.not_recorded)}.",
            "trtllm-build refuses what it does not know; compare the inspected engine with care.",
        ),
    )


def _is_between(version: str) -> bool:
    try:
        key = version_key(version)
    except ValueError:
        return False
    first, last = version_key(SUPPORTED_TENSORRT_LLM[0]), version_key(SUPPORTED_TENSORRT_LLM[-1])
    return first <= key < last  # 0.17.0.post1 has the key of 0.17.0


def _neighbour(version: str) -> str:
    key = version_key(version)
    if key >= version_key(_NEWEST_FROM):
        return SUPPORTED_TENSORRT_LLM[-1]
    return max((known for known in SUPPORTED_TENSORRT_LLM if version_key(known) <= key), key=version_key)
