"""From a manifest to a deployment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import Manifest, resolve_deployment_id
from trt_spec.plan.workspace import Workspace

PLACE = Workspace(Path("/w"))
ON_CPU: dict[str, Any] = {
    "backend": "onnx",
    "hardware": None,
    "target": {"tensor_parallel": 1},
    "entry": {"kv_cache_tokens": None, "logits_dtype": None},
}


def test_on_gpus(gpu_manifest: Callable[..., Manifest]) -> None:
    manifest = gpu_manifest(serve={"max_queue_size": 40})
    assert resolve_deployment(manifest, PLACE) == Deployment(
        name="pair",
        id=resolve_deployment_id(manifest),
        tensorrt_llm="1.2.1",
        target=EngineDeployment("/w/engines/target", Path("/w/engines/target"), 640, gpu_device_ids=(0, 1)),
        draft=EngineDeployment("/w/engines/draft", Path("/w/engines/draft"), 704, gpu_device_ids=(0,)),
        tokenizer_dir=Path("/w/engines/target"),
        max_draft_len=3,
        max_input_len=100,
        max_output_len=50,
        max_seq_len=156,
        max_batch_size=2,
        vocab_size=manifest.engines["target"].vocab_size,
        draft_vocab_size=manifest.engines["draft"].vocab_size,
        max_queue_requests=40,
        logits_dtype="FP32",
        logits_width=10,
        accept="tokens",
        draft_source="model",
        adaptive=True,
        draft_len_by_running=(3,),
    )


def test_on_a_cpu(gpu_manifest: Callable[..., Manifest]) -> None:
    """Without GPUs nobody plans memory: a full batch at its longest fits in both caches."""
    found = resolve_deployment(gpu_manifest(**ON_CPU), PLACE)
    assert found.target == EngineDeployment("/w/engines/target", Path("/w/engines/target"), 312)
    assert found.draft == EngineDeployment("/w/engines/draft", Path("/w/engines/draft"), 312)
    huge = gpu_manifest(
        **{**ON_CPU, "entry": {**ON_CPU["entry"], "max_seq_len": 2**24}, "limits": {"max_batch_size": 999}}
    )
    assert resolve_deployment(huge, PLACE).target.kv_cache_tokens == 2**31 - 1


def test_a_target_alone(gpu_manifest: Callable[..., Manifest]) -> None:
    found = resolve_deployment(gpu_manifest(draft=None, speculation={"mode": "none"}), PLACE)
    assert (found.draft, found.max_draft_len, found.adaptive, found.draft_len_by_running) == (None, 0, False, ())
    assert found.target.participant_ids == ()


@pytest.mark.parametrize("backend", [{}, ON_CPU])
def test_n_gram_look_up_has_one_engine_that_takes_drafts(
    gpu_manifest: Callable[..., Manifest], backend: dict[str, Any]
) -> None:
    found = resolve_deployment(gpu_manifest(**backend, draft=None, speculation={"mode": "ngram"}), PLACE)
    assert (found.draft, found.max_draft_len, found.draft_source, found.accept) == (None, 3, "ngram", "tokens")
    assert found.adaptive
    assert found.draft_vocab_size == 0


@pytest.mark.parametrize(("source", "expected"), [(None, "model"), ("ngram", "ngram"), ("auto", "auto")])
def test_a_pair_may_look_up_too(gpu_manifest: Callable[..., Manifest], source: str | None, expected: str) -> None:
    found = resolve_deployment(gpu_manifest(speculation={"draft_source": source}), PLACE)
    assert found.draft is not None
    assert (found.draft_source, found.max_draft_len) == (expected, 3)


def test_draft_lengths_come_from_the_plan_of_the_build(gpu_manifest: Callable[..., Manifest]) -> None:
    manifest = gpu_manifest()
    planned = manifest.model_copy(update={"draft_len_by_running": (3, 1)})
    assert resolve_deployment(planned, PLACE).draft_len_by_running == (3, 1)
    on_cpu = gpu_manifest(**{**ON_CPU, "limits": {"max_batch_size": 8}})  # an older trtspec wrote none
    assert resolve_deployment(on_cpu, PLACE).draft_len_by_running == (3, 3, 2, 2, 1, 1, 1, 0)


@pytest.mark.parametrize("accept", ["tokens", "logits"])
def test_acceptance_by_logits_works_on_a_cpu(gpu_manifest: Callable[..., Manifest], accept: str) -> None:
    found = resolve_deployment(gpu_manifest(**ON_CPU, speculation={"accept": accept}), PLACE)
    assert (found.accept, found.gathers_logits, found.logits_dtype) == (accept, True, "FP32")
    fixed = gpu_manifest(**ON_CPU, speculation={"adaptive": False})
    assert not resolve_deployment(fixed, PLACE).adaptive


def test_the_server_may_see_the_workspace_elsewhere(gpu_manifest: Callable[..., Manifest]) -> None:
    found = resolve_deployment(gpu_manifest(), Workspace(Path("relative")), "/models")
    assert found.target.path == "/models/engines/target"
    assert found.target.folder == Path("relative/engines/target").absolute()
    assert found.draft is not None
    assert found.draft.path == "/models/engines/draft"


def test_ranks_are_named_only_where_all_start_together(gpu_manifest: Callable[..., Manifest]) -> None:
    found = resolve_deployment(gpu_manifest(speculation={"accept": "fast_logits"}), PLACE)
    assert found.fast_logits
    assert found.draft is not None
    assert (found.draft.participant_ids, found.target.participant_ids) == ((1,), (2, 3))


@pytest.mark.parametrize(
    ("gpus", "device_ids", "nodes"),
    [
        ([0, 1, 2, 3], (0, 1), 2),  # gpus count over both nodes
        ([1, 0, 3, 2], (1, 0), 2),
        ([0, 3], (0, 1), 1),
        ([2, 3], (0, 1), 1),
    ],
)
def test_engines_over_nodes(
    gpu_manifest: Callable[..., Manifest], gpus: list[int], device_ids: tuple[int, ...], nodes: int
) -> None:
    manifest = gpu_manifest(
        hardware={"gpus": 2, "nodes": 2}, target={"gpus": gpus, "tensor_parallel": len(gpus)}, draft={"gpus": [0]}
    )
    target = resolve_deployment(manifest, PLACE).target
    assert (target.gpu_device_ids, target.nodes) == (device_ids, nodes)
    assert len(device_ids) * nodes == len(gpus)  # TensorRT-LLM's own check
    assert [device_ids[rank % len(device_ids)] for rank in range(len(gpus))] == [gpu % 2 for gpu in gpus]


@pytest.mark.parametrize("gpus", [[0, 1, 3, 2], [0, 1, 2], [1, 3, 0]])
def test_gpus_that_the_backend_cannot_be_told(gpu_manifest: Callable[..., Manifest], gpus: list[int]) -> None:
    manifest = gpu_manifest(
        hardware={"gpus": 2, "nodes": 2}, target={"gpus": gpus, "tensor_parallel": len(gpus)}, draft={"gpus": [0]}
    )
    with pytest.raises(SpecError, match="one list for all nodes"):
        resolve_deployment(manifest, PLACE)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kv_cache_tokens": None}, "how many tokens the KV cache of the target"),
        ({"logits_dtype": "bfloat16"}, "logits in bfloat16"),
    ],
)
def test_manifests_that_do_not_say_enough(
    gpu_manifest: Callable[..., Manifest], entry: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        resolve_deployment(gpu_manifest(entry=entry), PLACE)
    assert "trtspec build" in caught.value.remedy


def test_logits_of_half_precision(gpu_manifest: Callable[..., Manifest]) -> None:
    assert resolve_deployment(gpu_manifest(entry={"logits_dtype": "float16"}), PLACE).logits_dtype == "FP16"


@pytest.mark.parametrize(("accept", "gathers"), [("tokens", False), ("logits", True)])
def test_who_gathers_logits(gpu_manifest: Callable[..., Manifest], accept: str, gathers: bool) -> None:
    assert resolve_deployment(gpu_manifest(speculation={"accept": accept}), PLACE).gathers_logits is gathers
    assert resolve_deployment(gpu_manifest(**ON_CPU), PLACE).gathers_logits  # every engine of backend onnx does
