"""How Triton starts with its LLM API model: one process, or one an MPI rank where the model is split.

Source: NVIDIA/TensorRT-LLM 222982db tests/integration/defs/triton_server/test_triton_llmapi.py, which starts a whole
model with `--no-mpi` and one of tensor_parallel_size 4 with `--world_size=4 --trtllm_llmapi_launch`;
triton_backend/scripts/launch_triton_server.py, which turns these into commands; llmapi/trtllm-llmapi-launch, where only
rank 0 runs the command and the others wait for work. None of it was run here.
"""

from __future__ import annotations

import re

from trt_spec.errors import SpecError
from trt_spec.plan.engine_record import MODEL_NAMES
from trt_spec.plan.launch import ENVIRONMENT, SHM_PREFIX, TRITONSERVER, Launch, python_backend_threads, server_argv
from trt_spec.plan.placement import plan_placement
from trt_spec.spec.model import Serve, Spec
from trt_spec.spec.reference import judge_reference

RANK_LAUNCHER = "trtllm-llmapi-launch"
HUB_OFFLINE = "HF_HUB_OFFLINE"
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
# trtllm-llmapi-launch expands the command without quotes: the shell would split and glob it.
_UNSAFE = re.compile(r"[\s*?\[\]]")


def plan_llmapi_launch(
    spec: Spec,
    repository: str,
    serve: Serve | None = None,
    *,
    program: str = TRITONSERVER,
    shm_prefix: str = SHM_PREFIX,
) -> Launch:
    """The processes that serve ``repository``, a path as those processes see it. Pure.

    ``serve`` is where they listen, the spec's own if None; the rest as in ``plan_launch``. Raises SpecError for a path
    with blanks or glob characters where several ranks are started.
    """
    placement = plan_placement(spec)[0]
    ranks, serve = placement.world_size, serve or spec.serve
    threads = python_backend_threads(spec.limits.max_batch_size, engines=1)
    environment = dict(ENVIRONMENT)
    if any(judge_reference(model.model) == "hub" for model in spec.models().values()):
        del environment[HUB_OFFLINE]  # TensorRT-LLM itself downloads hub models, at the start
    if spec.target.gpus is not None:
        environment[VISIBLE_VARIABLE] = ",".join(map(str, spec.target.gpus))
    nodes = placement.roles["target"].nodes
    if ranks == 1:
        argv = server_argv(program, repository, serve, f"{shm_prefix}0_", threads=threads)
        return Launch("llmapi", environment, (argv,), nodes)
    if _UNSAFE.search(repository):
        raise SpecError(
            f"The repository is at {repository}: {RANK_LAUNCHER}, which starts the ranks of a split model, breaks "
            "paths with blanks or any of *?[] apart.",
            remedy="Choose another workspace with -o.",
        )
    waiting = ("--model-control-mode=explicit", f"--load-model={MODEL_NAMES['target']}")
    commands = tuple(
        (
            RANK_LAUNCHER,
            *server_argv(program, repository, serve, f"{shm_prefix}{rank}_", threads=threads),
            *(() if rank == 0 else waiting),
        )
        for rank in range(ranks)
    )
    return Launch("llmapi", environment, commands, nodes)
