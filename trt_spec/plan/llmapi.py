"""The plan of backend llmapi: what tensorrt_llm.LLM is given, and what is worth knowing before it runs.

Names of fields are those of BaseLlmArgs, TorchLlmArgs and KvCacheConfig in llm_args.py, which are the same from 1.0 to
1.4; what differs by version is data (``llmapi_dialect``). TensorRT-LLM refuses fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.plan.finding import Finding
from trt_spec.plan.llmapi_dialect import LlmapiDialect, judge_known_troubles, load_llmapi_dialect
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.toolchain.containers import containers_with, load_containers
from trt_spec.spec.model import Spec
from trt_spec.spec.reference import judge_reference

DEFAULT_MAX_NUM_TOKENS = 8192  # TensorRT-LLM's own; a longer prompt would be refused
# Longest end of the text that is looked up in what came before; as in NVIDIA's speculative-decoding.md. TensorRT-LLM
# 1.0 has 0 for a default, and refuses it.
MAX_MATCHING_NGRAM_SIZE = 4
# Modes that NVIDIA's speculative-decoding.md runs without the overlap scheduler, in every version of it that was read.
WITHOUT_OVERLAP = ("draft_target", "ngram")

# Triton's LLM API model takes one prompt a request, and a decoupled one answers /generate as well as streams.
TRITON_SETTINGS = {"max_batch_size": 0, "decoupled": True}


@dataclass(frozen=True)
class LlmapiPlan:
    """``arguments`` are those of tensorrt_llm.LLM, plain values in the order of the file.

    ``image`` is the newest recorded Triton container with that TensorRT-LLM, None where there is none.
    """

    spec: Spec
    dialect: LlmapiDialect
    arguments: Mapping[str, Any]
    image: str | None
    findings: tuple[Finding, ...]

    def model_yaml(self) -> dict[str, Any]:
        """What model.yaml of Triton's LLM API model holds."""
        return {**self.arguments, "triton_config": dict(TRITON_SETTINGS)}

    def require_image(self) -> str:
        """The container, for what cannot do without one. Raises SpecError where none is known."""
        if self.image is None:
            raise SpecError(
                f"No recorded Triton container holds TensorRT-LLM {self.spec.tensorrt_llm}.",
                remedy=f"Set tensorrt_llm to {load_containers()[0].tensorrt_llm}, run `trtspec serve` inside an image "
                "of your own that has both, or use compare/trtllm-serve.sh.",
            )
        return self.image


def plan_llmapi(spec: Spec) -> LlmapiPlan:
    """Plans a spec of backend llmapi. Pure.

    Raises SpecError for a spec of another backend and for a model that is no Hugging Face checkpoint.
    """
    if spec.backend != "llmapi":
        raise SpecError(f"The spec is for backend {spec.backend}, not llmapi.", remedy="Set backend to llmapi.")
    for role, model in spec.models().items():
        if judge_reference(model.model) == "pypi":
            raise SpecError(
                f"{role}.model is {model.model}, which holds no Hugging Face checkpoint.",
                remedy="Name a hub id or a folder; the demo model is for backend onnx.",
            )
    dialect = load_llmapi_dialect(spec.tensorrt_llm)
    containers = containers_with(spec.tensorrt_llm)
    image = containers[0].container if containers else None
    return LlmapiPlan(spec, dialect, _plan_arguments(spec, dialect), image, tuple(_judge(spec, dialect, image)))


def _plan_arguments(spec: Spec, dialect: LlmapiDialect) -> dict[str, Any]:
    target, limits, mode = spec.target, spec.limits, spec.speculation.mode
    verified = 1 if mode == "none" else spec.speculation.max_draft_len + 1  # tokens of one sequence in one step
    arguments: dict[str, Any] = {"model": target.model}
    if target.revision is not None:
        arguments |= {"revision": target.revision, "tokenizer_revision": target.revision}
    arguments |= {
        "backend": "pytorch",
        "dtype": target.dtype,
        "tensor_parallel_size": target.tensor_parallel,
        "pipeline_parallel_size": target.pipeline_parallel,
        "max_batch_size": limits.max_batch_size,
        "max_input_len": limits.max_input_len,
        "max_seq_len": limits.max_input_len + limits.max_output_len,
        "max_num_tokens": max(DEFAULT_MAX_NUM_TOKENS, limits.max_input_len, limits.max_batch_size * verified),
    }
    kv_cache: dict[str, Any] = {}
    if target.kv_cache_dtype != "auto":
        kv_cache["dtype"] = target.kv_cache_dtype
    if mode in dialect.block_reuse_off:
        kv_cache["enable_block_reuse"] = False
    if kv_cache:
        arguments["kv_cache_config"] = kv_cache
    if mode in WITHOUT_OVERLAP:
        arguments["disable_overlap_scheduler"] = True
    if mode != "none":
        arguments["speculative_config"] = _plan_speculation(spec, dialect)
    return arguments


def _plan_speculation(spec: Spec, dialect: LlmapiDialect) -> dict[str, Any]:
    mode = spec.speculation.mode
    length_field = dialect.mtp_length_field if mode == "mtp" else "max_draft_len"
    config: dict[str, Any] = {
        "decoding_type": dialect.decoding_types[mode],
        length_field: spec.speculation.max_draft_len,
    }
    if spec.draft is not None:
        config[dialect.draft_field] = spec.draft.model
    if mode == "ngram":
        config["max_matching_ngram_size"] = MAX_MATCHING_NGRAM_SIZE
        config["is_public_pool"] = True
    return config


def _judge(spec: Spec, dialect: LlmapiDialect, image: str | None) -> Iterator[Finding]:
    yield from plan_placement(spec)[1]
    yield from judge_known_troubles(spec.tensorrt_llm)
    if image is None:
        yield Finding(
            "llmapi-no-container",
            "warn",
            f"No recorded Triton container holds TensorRT-LLM {spec.tensorrt_llm}.",
            "Make an image with both, or serve with `trtllm-serve`, which the compare folder holds a command for.",
        )
    if spec.speculation.mode != "none":
        yield Finding("llmapi-trust", "note", f"Names of speculative_config in {spec.tensorrt_llm}: {dialect.trust}.")
    for role, model in spec.models().items():
        if judge_reference(model.model) == "hub" and model.revision is None:
            remedy = (
                "Set target.revision to a commit." if role == "target" else "Download the draft and name its folder."
            )
            yield Finding(
                "llmapi-unpinned",
                "note",
                f"{role}: every start takes the newest commit of {model.model}.",
                remedy,
                role,
            )
