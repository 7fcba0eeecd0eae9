"""What is recorded of each TensorRT-LLM release that engines can be built with: data files and their reader."""

from trt_spec.plan.toolchain.profile import ConfigField, Flag, Profile, load_profile

__all__ = ["ConfigField", "Flag", "Profile", "load_profile"]
