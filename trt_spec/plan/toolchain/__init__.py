"""What is recorded of each TensorRT-LLM release that engines can be built with: data files and their readers."""

from trt_spec.plan.toolchain.derived import judge_derived, resolve_profile
from trt_spec.plan.toolchain.profile import ConfigField, Flag, Profile, load_profile

__all__ = ["ConfigField", "Flag", "Profile", "judge_derived", "load_profile", "resolve_profile"]
