"""Which tensors of a Triton model carry what a load asks for and is told, by dialect: NVIDIA's, ours, llmapi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.serve.contract import MIN_TOKENS_NAMES, SEED_NAMES
from trt_spec.verify.load.request import LoadRequest, Message
from trt_spec.verify.tensors import ModelInterface

# What is asked for -> its names, in the order tried. llmapi's are those of tensorrt_llm's LLM API model (1.3.0rc3).
_NAMES = {
    "max_tokens": ("max_tokens", "sampling_param_max_tokens"),
    "stream": ("stream", "streaming"),
    "seed": (*SEED_NAMES, "sampling_param_seed"),
    "top_k": ("top_k", "sampling_param_top_k"),
    "temperature": ("temperature", "sampling_param_temperature"),
    "min_tokens": MIN_TOKENS_NAMES,
    "exclude_input": ("exclude_input_in_output", "sampling_param_exclude_input_from_output"),
    "details": ("return_perf_metrics",),
    "num_draft_tokens": ("num_draft_tokens",),
}
_NEEDED = ("max_tokens", "stream")
_GROWING_DIALECT = "sampling_param_max_tokens"


def check_interface(interface: ModelInterface, where: str) -> None:
    """Raises SpecError unless the model takes a text and can stream its answer."""
    lacking = [name for name in _NEEDED if _find(interface, name) is None]
    if "text_input" not in interface.inputs or "text_output" not in interface.outputs or lacking:
        raise SpecError(
            f"{where} takes no text prompts (inputs: {', '.join(sorted(interface.inputs))}).",
            remedy="Name a model with text_input, max_tokens, stream and text_output: ensemble, or tensorrt_llm_bls.",
        )
    if not interface.decoupled:
        raise SpecError(
            f"{where} does not stream: its config.pbtxt says decoupled: false.",
            remedy="Name a decoupled model (trtspec's is called ensemble): one piece shows no token times.",
        )


def text_grows(interface: ModelInterface) -> bool:
    """Whether each message of a stream repeats the answer so far, as the LLM API model's do."""
    return _GROWING_DIALECT in interface.inputs


def request_values(interface: ModelInterface, request: LoadRequest, *, with_details: bool) -> dict[str, Any]:
    """Input values by tensor name. Raises SpecError for a draft length that the model does not take."""
    asked = {
        "max_tokens": request.max_tokens,
        "stream": True,
        "seed": request.seed,
        "top_k": request.top_k or (1 if request.temperature is None else None),
        "temperature": request.temperature,
        "min_tokens": request.min_tokens,
        "exclude_input": True,
        "details": with_details or None,
        "num_draft_tokens": request.num_draft_tokens,
    }
    values: dict[str, Any] = {"text_input": request.text}
    for what, value in asked.items():
        name = _find(interface, what)
        if value is not None and name is not None:
            values[name] = value
        elif value is not None and what in ("num_draft_tokens", "min_tokens"):
            raise SpecError(
                f"{interface.name} takes no {what}, and without it the load would measure something else.",
                remedy="Leave it out for this endpoint.",
            )
    return values


def read_message(text: str, ints: Callable[[str], tuple[int, ...] | None], *, text_grows: bool) -> Message:
    """One message of a stream; ``ints`` gives all values of an output by its name, None where it is not there."""
    drafted, accepted = ints("total_draft_tokens"), ints("total_accepted_draft_tokens")
    return Message(
        text=text,
        output_ids=ints("output_ids"),
        rounds_drafted=ints("round_draft_tokens"),
        rounds_accepted=ints("round_accepted_draft_tokens"),
        drafted_tokens=sum(drafted) if drafted else None,
        accepted_tokens=sum(accepted) if accepted else None,
        text_grows=text_grows,
    )


def _find(interface: ModelInterface, what: str) -> str | None:
    return next((name for name in _NAMES[what] if name in interface.inputs), None)
