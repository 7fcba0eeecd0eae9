"""What ``trtspec plan`` prints of backend llmapi: model.yaml and the commands, ready to copy."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import yaml

from trt_spec.plan.llmapi_comparison import SERVE_YAML, plan_trtllm_serve, plan_vllm
from trt_spec.plan.plan import LlmapiServing

if TYPE_CHECKING:
    from rich.console import Console


def print_llmapi(serving: LlmapiServing, console: Console) -> None:
    """The container, model.yaml, and the commands of Triton, trtllm-serve and vLLM."""
    plan = serving.plan
    lines = [
        f"TensorRT-LLM {plan.spec.tensorrt_llm} in {plan.image or 'an image of your own'}",
        "model.yaml of Triton's LLM API model:",
        *(f"  {line}" for line in yaml.safe_dump(plan.model_yaml(), sort_keys=False).splitlines()),
        f"launch: {serving.launch.shell_line()}",
        f"compare: {shlex.join(plan_trtllm_serve(plan, SERVE_YAML))}",
        f"compare: {shlex.join(plan_vllm(plan.spec))}",
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
