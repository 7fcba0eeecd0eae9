"""A target as `trtspec deploy` derives it, from a build of a spec that a test changes in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.launch_files import resolve_gpu_target
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.plan.manifest import EngineEntry, Manifest
from trt_spec.plan.workspace import Workspace
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
ALONE: dict[str, Any] = {"draft": None, "speculation": {"mode": "none"}}


@pytest.fixture
def make_target(tmp_path: Path) -> MakeTarget:
    """``make_target(host, engine_bytes=..., workspace=..., **spec)``: a section of the spec is replaced as a whole.

    The engines are one file of that size without content, the fingerprints those of ``fingerprint``.
    """

    def make(
        to: Any = "k8s",
        *,
        engine_bytes: int = 400 * 10**9,
        workspace: str = "pair",
        fingerprint: str = "f",
        **changes: Any,
    ) -> GpuTarget:
        spec = Spec.model_validate({**SPEC, **changes})
        place = Workspace(tmp_path / workspace)
        place.engine("target").mkdir(parents=True, exist_ok=True)
        with (place.engine("target") / "rank0.engine").open("wb") as file:
            file.truncate(engine_bytes)
        entry = EngineEntry(fingerprint=fingerprint, source="s", vocab_size=10, max_seq_len=156, max_draft_len=3)
        engines = {str(role): entry for role in spec.models()}
        return resolve_gpu_target(Manifest(trtspec="0", spec=spec, engines=engines), place, to)

    return make
