"""Where the derived values of a plan of backend llmapi come from."""

from __future__ import annotations

from trt_spec.plan.explanation import Explanation
from trt_spec.plan.llmapi import DEFAULT_MAX_NUM_TOKENS, LlmapiPlan


def explain_llmapi(plan: LlmapiPlan, world_size: int) -> tuple[Explanation, ...]:
    """Every derived field; ``world_size`` is the number of processes that start."""
    spec, arguments = plan.spec, plan.arguments
    limits, target = spec.limits, spec.target
    verified = 1 if spec.speculation.mode == "none" else spec.speculation.max_draft_len + 1
    explanations = [
        Explanation(
            "model.max_seq_len",
            str(arguments["max_seq_len"]),
            f"max_input_len {limits.max_input_len} + max_output_len {limits.max_output_len}",
            "TensorRT-LLM llm_args.py: prompt and answer together",
        ),
        Explanation(
            "model.max_num_tokens",
            str(arguments["max_num_tokens"]),
            f"the largest of TensorRT-LLM's default {DEFAULT_MAX_NUM_TOKENS}, max_input_len {limits.max_input_len} and "
            f"max_batch_size {limits.max_batch_size} x {verified} tokens a step",
            "a prompt is read in one step unless chunked, and a step verifies every draft of the batch",
        ),
        Explanation(
            "placement.world_size",
            str(world_size),
            f"tensor_parallel {target.tensor_parallel} x pipeline_parallel {target.pipeline_parallel}; the draft runs "
            "in the same processes",
            "NVIDIA's test_triton_llmapi.py: one process, or one an MPI rank through trtllm-llmapi-launch",
        ),
    ]
    if spec.speculation.mode != "none":
        config = arguments["speculative_config"]
        explanations.append(
            Explanation(
                "speculative_config.decoding_type",
                str(config["decoding_type"]),
                f"mode {spec.speculation.mode} as TensorRT-LLM {plan.dialect.since} and newer spell it",
                f"{plan.dialect.source} ({plan.dialect.trust})",
            )
        )
    return tuple(explanations)
