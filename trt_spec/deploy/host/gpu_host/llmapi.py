"""Serving models of backend llmapi on this GPU host. Nothing is built for it: the checkpoints are read at the start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trt_spec.deploy.host.gpu_host.runner import Runner
from trt_spec.deploy.host.gpu_host.served import Served
from trt_spec.deploy.load_time import load_time_s
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.engine_record import SeenGpu
from trt_spec.plan.llmapi_launch import plan_llmapi_launch
from trt_spec.plan.placement import Placement
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec
from trt_spec.spec.reference import judge_reference

DOWNLOAD_S = 7200.0  # a hub model comes at the first start: hundreds of GB over an ordinary line


def check_models(spec: Spec, place: Workspace, placement: Placement, runner: Runner, seen: Sequence[SeenGpu]) -> Served:
    """What serves the models of a spec, which fit this machine; ``place`` adds nothing to them.

    Raises SpecError for another TensorRT-LLM than the spec's, folders without a checkpoint and models that a container
    cannot fetch, EnvironmentMissing for GPUs that are not there.
    """
    _check_folders(spec)
    _check_runner(spec, runner)
    if len(seen) < placement.visible_gpus:
        raise EnvironmentMissing(
            f"The spec uses GPUs up to index {placement.visible_gpus - 1}, and {len(seen)} are visible here.",
            remedy="Serve on the GPU host, or look at `trtspec doctor`.",
        )
    return Served(partial(plan_llmapi_launch, spec), _model_folders(spec), llmapi_timeout_s(spec))


def llmapi_timeout_s(spec: Spec) -> float:
    """How long the models may take to load, by the size of their files; a hub model is downloaded first."""
    sizes = (file.stat().st_size for folder in _model_folders(spec) for file in folder.glob("*.safetensors"))
    return load_time_s(sum(sizes)) + (DOWNLOAD_S if _hub_models(spec) else 0.0)


def _model_folders(spec: Spec) -> tuple[Path, ...]:
    models = (model.model for model in spec.models().values())
    return tuple(Path(model) for model in models if judge_reference(model) == "folder")


def _hub_models(spec: Spec) -> list[str]:
    return [model.model for model in spec.models().values() if judge_reference(model.model) == "hub"]


def _check_folders(spec: Spec) -> None:
    for folder in _model_folders(spec):
        if not (folder / "config.json").is_file():
            raise SpecError(
                f"{folder} holds no config.json, expected a Hugging Face checkpoint.", remedy="Check the path."
            )


def _check_runner(spec: Spec, runner: Runner) -> None:
    if runner.tensorrt_llm is not None and runner.tensorrt_llm != spec.tensorrt_llm:
        raise SpecError(
            f"TensorRT-LLM {runner.tensorrt_llm} is installed here, model.yaml is written for {spec.tensorrt_llm}.",
            remedy=f'Set tensorrt_llm: "{runner.tensorrt_llm}" and run `trtspec deploy` again.',
        )
    if runner.server is None and _hub_models(spec):
        raise SpecError(
            f"{' and '.join(_hub_models(spec))}: a container would download it at every start, without your token.",
            remedy="Download it (`hf download`) and name the folder in the spec.",
        )
