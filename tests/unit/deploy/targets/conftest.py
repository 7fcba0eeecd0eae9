"""A target as `trtspec deploy` derives it, from a spec that a test changes in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trt_spec.deploy.targets.target import GpuTarget, container_repository, container_serve, count_gpus
from trt_spec.plan.launch import plan_launch
from trt_spec.plan.placement import plan_placement
from trt_spec.spec.model import Spec

MakeTarget = Callable[..., GpuTarget]

SPEC: dict[str, Any] = {
    "name": "pair",
    "backend": "engine",
    "tensorrt_llm": "1.2.1",
    "hardware": {"gpu": "H200", "gpus": 4, "nodes": 1},
    "target": {"model": "owner/target", "tensor_parallel": 4},
    "draft": {"model": "owner/draft", "gpus": [0]},
}
TWO_NODES: dict[str, Any] = {
    "hardware": {"gpu": "H200", "gpus": 4, "nodes": 2},
    "target": {"model": "owner/target", "tensor_parallel": 8},
}


@pytest.fixture
def make_target() -> MakeTarget:
    """``make_target(target_name, engine_bytes=..., **spec)``: the keywords replace whole sections of the spec."""

    def make(kind: str = "k8s", *, engine_bytes: int = 400 * 10**9, **changes: Any) -> GpuTarget:
        spec = Spec.model_validate({**SPEC, **changes})
        placement, _ = plan_placement(spec)
        gpus_per_node, nodes = count_gpus(placement)
        launch = plan_launch(placement, container_repository(kind), container_serve(spec.serve), gpus_per_node)
        return GpuTarget(
            spec=spec,
            image="nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3",
            launch=launch,
            gpus_per_node=gpus_per_node,
            nodes=nodes,
            engine_bytes=engine_bytes,
            models=("ensemble", "tensorrt_llm", "tensorrt_llm_bls", "tensorrt_llm_draft"),
            deployment_id="0f" * 32,
            workspace="/srv/pair",
        )

    return make
