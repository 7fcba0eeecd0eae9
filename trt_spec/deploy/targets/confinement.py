"""What a confined server runs as and may write to, the same under Compose and Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping

from trt_spec.plan.hardware import GIB

# Triton's build script makes the user triton-server with this id; that the TensorRT-LLM image serves under it with a
# read-only root was not tried here.
USER_ID = 1000
HOME = "/home/trtspec"  # caches of CUDA and Triton's libraries; the image's own home may not exist or be writable
SCRATCH_FOLDERS = ("/tmp", HOME)  # all that is writable
SCRATCH_BYTES = 4 * GIB  # of each


def confine_environment(environment: Mapping[str, str], home: str | None = HOME) -> dict[str, str]:
    """The environment of a launch where nothing can be written beside the code; ``home`` None leaves HOME as it is."""
    return {**environment, **({} if home is None else {"HOME": home}), "PYTHONDONTWRITEBYTECODE": "1"}
