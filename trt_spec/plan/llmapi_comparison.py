"""The same model and speculation under ``trtllm-serve`` and under vLLM, for a comparison with one command each.

Options of trtllm-serve: tensorrt_llm/commands/serve.py. vLLM: `vllm serve --help` and SpeculativeConfig as its
documentation of 2026 shows them; neither program was run here.
"""

from __future__ import annotations

import json
from typing import Any

from trt_spec.plan.llmapi import MAX_MATCHING_NGRAM_SIZE, LlmapiPlan
from trt_spec.spec.model import Spec

SERVE_YAML = "trtllm-serve.yaml"  # beside the commands
VLLM_METHODS = {"draft_target": "draft_model", "ngram": "ngram", "eagle3": "eagle3", "mtp": "mtp"}
_BY_OPTION = ("model", "backend", "tensor_parallel_size", "pipeline_parallel_size")


def plan_serve_yaml(plan: LlmapiPlan) -> dict[str, Any]:
    """What the YAML file of trtllm-serve holds: the arguments that no option of it carries here."""
    return {name: value for name, value in plan.arguments.items() if name not in _BY_OPTION}


def plan_trtllm_serve(plan: LlmapiPlan, config_file: str) -> tuple[str, ...]:
    """The trtllm-serve command; ``config_file`` is the path of the YAML as the command sees it."""
    spec = plan.spec
    return (
        *("trtllm-serve", spec.target.model, "--backend", "pytorch"),
        *("--tp_size", str(spec.target.tensor_parallel), "--pp_size", str(spec.target.pipeline_parallel)),
        *("--host", spec.serve.host, "--port", str(spec.serve.http_port)),
        *(plan.dialect.config_flag, config_file),
    )


def plan_vllm(spec: Spec) -> tuple[str, ...]:
    """The vllm command with the same models, split, lengths and kind of speculation."""
    target, limits = spec.target, spec.limits
    argv = ["vllm", "serve", target.model]
    if target.revision is not None:
        argv += ["--revision", target.revision]
    argv += ["--dtype", target.dtype]
    argv += ["--tensor-parallel-size", str(target.tensor_parallel)]
    argv += ["--pipeline-parallel-size", str(target.pipeline_parallel)]
    if target.kv_cache_dtype != "auto":
        argv += ["--kv-cache-dtype", target.kv_cache_dtype]
    argv += ["--max-model-len", str(limits.max_input_len + limits.max_output_len)]
    argv += ["--max-num-seqs", str(limits.max_batch_size)]
    argv += ["--host", spec.serve.host, "--port", str(spec.serve.http_port)]
    if spec.speculation.mode != "none":
        argv += ["--speculative-config", json.dumps(_vllm_speculation(spec))]
    return tuple(argv)


def _vllm_speculation(spec: Spec) -> dict[str, Any]:
    config: dict[str, Any] = {
        "method": VLLM_METHODS[spec.speculation.mode],
        "num_speculative_tokens": spec.speculation.max_draft_len,
    }
    if spec.draft is not None:
        # vLLM splits a draft model as its target, too.
        config |= {"model": spec.draft.model, "draft_tensor_parallel_size": spec.target.tensor_parallel}
    if spec.speculation.mode == "ngram":
        config["prompt_lookup_max"] = MAX_MATCHING_NGRAM_SIZE
    return config
