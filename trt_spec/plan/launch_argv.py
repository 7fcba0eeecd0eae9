"""The command line that starts Triton on a GPU host, through the launch script of NVIDIA's container."""

from __future__ import annotations

from pathlib import Path

from trt_spec.plan.placement import Placement
from trt_spec.plan.toolchain import Profile
from trt_spec.spec.model import Serve

TARGET_MODEL, DRAFT_MODEL = "tensorrt_llm", "tensorrt_llm_draft"


def launch_argv(placement: Placement, profile: Profile, repository: Path, serve: Serve) -> tuple[str, ...]:
    """launch_triton_server.py for the planned processes; ``repository`` is the model repository.

    Two engines need orchestrator mode (``--multi-model``): spawned, Triton starts the ranks itself and the world size
    is 1; pre-spawned, all ranks start together and rank 0 orchestrates. The script has no flag for ``serve.host``:
    Triton listens on all interfaces of its container, and it is the container's published ports that bind the host.
    Nor has it one for hosts: on several nodes mpirun takes them from its scheduler or its own configuration.
    """
    names = TARGET_MODEL if placement.mode == "leader" else f"{TARGET_MODEL},{DRAFT_MODEL}"
    mode = {
        "leader": (),
        "orchestrator-spawned": ("--multi-model",),
        "orchestrator-prespawned": ("--multi-model", "--disable-spawn-processes"),
    }[placement.mode]
    return (
        *("python3", profile.launcher_path, "--model_repo", str(repository)),
        *("--tensorrt_llm_model_name", names, *mode, "--world_size", str(placement.world_size)),
        *("--http_port", str(serve.http_port), "--grpc_port", str(serve.grpc_port)),
        *("--metrics_port", str(serve.metrics_port)),
    )
