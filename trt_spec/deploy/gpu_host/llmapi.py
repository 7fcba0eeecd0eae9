"""From a deployed repository of backend llmapi to what serves it on this GPU host. Nothing is built for it."""

from __future__ import annotations

import os
from pathlib import Path

from trt_spec.deploy.gpu_host.host import GpuHost
from trt_spec.deploy.gpu_host.preflight import VISIBLE_VARIABLE, check_one_node, resolve_visible_gpus
from trt_spec.deploy.gpu_host.resolve import LOAD_BASE_S, LOAD_BYTES_PER_S, find_mounts
from trt_spec.deploy.gpu_host.runner import Runner, find_runner
from trt_spec.deploy.llmapi import resolve_llmapi_id
from trt_spec.deploy.ownership import read_marker
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.engine_record import GPU_FIELDS, SeenGpu, parse_gpus
from trt_spec.plan.launch import Launch
from trt_spec.plan.llmapi import plan_llmapi
from trt_spec.plan.llmapi_launch import plan_llmapi_launch
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Serve, Spec
from trt_spec.spec.rules import judge_reference
from trt_spec.util.nvidia_smi import query_gpus

DOWNLOAD_S = 7200.0  # a hub model comes at the first start: hundreds of GB over an ordinary line


def find_llmapi_runner(spec: Spec) -> Runner:
    """Where a spec can be served here: natively or in the recorded container. Raises EnvironmentMissing if nowhere."""
    image = plan_llmapi(spec).image
    runner = find_runner(spec.backend, image or f"of your own, with TensorRT-LLM {spec.tensorrt_llm}")
    if runner.server is None and image is None:
        raise EnvironmentMissing(
            f"No recorded Triton container holds TensorRT-LLM {spec.tensorrt_llm}, and here is no tritonserver.",
            remedy="Run trtspec inside an image of your own that has both, or use compare/trtllm-serve.sh.",
        )
    return runner


def resolve_llmapi_host(spec: Spec, place: Workspace, workspace: Path, runner: Runner) -> GpuHost:
    """What serves the repository of ``place``; ``workspace`` takes the server's own files.

    Raises SpecError for a repository of another spec, another TensorRT-LLM than the spec's and for models that a
    container cannot fetch, EnvironmentMissing for GPUs that are not there.
    """
    placement, _ = plan_placement(spec)
    check_one_node(placement)
    _check_deployed(spec, place)
    _check_runner(spec, runner)
    needed = 1 + max(placement.roles["target"].device_ids)
    seen = _see_gpus(runner)
    if len(seen) < needed:
        raise EnvironmentMissing(
            f"The spec uses GPUs up to index {needed - 1}, and {len(seen)} are visible here.",
            remedy="Serve on the GPU host, or look at `trtspec doctor`.",
        )
    folders = _model_folders(spec)

    def plan(repository: str, serve: Serve, gpus: int, shm_prefix: str) -> Launch:
        return plan_llmapi_launch(spec.model_copy(update={"serve": serve}), repository, shm_prefix)

    return GpuHost(
        runner=runner,
        workspace=workspace,
        repository=place.repository.absolute(),
        plan=plan,
        gpus=tuple(gpu.index for gpu in seen) if runner.server is not None else tuple(range(needed)),
        ranks=placement.world_size,
        # A model is read under the name that model.yaml has for it, also where that is a link.
        mounts=tuple(dict.fromkeys((*find_mounts(place.root.absolute(), workspace, *folders), *folders))),
    )


def llmapi_timeout_s(spec: Spec) -> float:
    """How long the models may take to load, by the size of their files; a hub model is downloaded first."""
    sizes = (file.stat().st_size for folder in _model_folders(spec) for file in folder.glob("*.safetensors"))
    download_s = DOWNLOAD_S if _hub_models(spec) else 0.0
    return LOAD_BASE_S + download_s + sum(sizes) / LOAD_BYTES_PER_S


def _model_folders(spec: Spec) -> tuple[Path, ...]:
    models = (model.model for model in spec.models().values())
    return tuple(Path(model) for model in models if judge_reference(model) == "folder")


def _hub_models(spec: Spec) -> list[str]:
    return [model.model for model in spec.models().values() if judge_reference(model.model) == "hub"]


def _check_deployed(spec: Spec, place: Workspace) -> None:
    if (read_marker(place.repository) or {}).get("deployment_id") != resolve_llmapi_id(spec):
        raise SpecError(
            f"{place.repository} was deployed from another spec than this one.", remedy="Run `trtspec deploy` first."
        )
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


def _see_gpus(runner: Runner) -> tuple[SeenGpu, ...]:
    seen = parse_gpus(query_gpus(GPU_FIELDS))
    return seen if runner.server is None else resolve_visible_gpus(seen, os.environ.get(VISIBLE_VARIABLE))
