"""Parameters of every model: left-over placeholders, unknown and missing ones.

Sources: tensorrtllm_backend v0.17.0 inflight_batcher_llm/src (a parameter that does not parse is unset; gpt_model_type
must be one of three; an engine path must be there) and all_models/inflight_batcher_llm/*/1/model.py (what begins with
"${" is unset; tokenizer_dir is used as it stands).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.kinds import ModelKind, find_dialect_name, find_kind, is_ours, is_placeholder
from trt_spec.deploy.check.rules.report import found_parameter, listed
from trt_spec.deploy.check.version import load_recorded
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.deploy.parameter_names import (
    BATCHING,
    ENCODER_PATH,
    ENGINE_PATH,
    INFLIGHT,
    INFLIGHT_TYPES,
    STATIC_TYPES,
    TOKENIZER_DIR,
)

# What a model cannot do without, each with what may stand in for it.
REQUIRED: Mapping[ModelKind, tuple[tuple[str, ...], ...]] = {
    "engine": ((ENGINE_PATH, ENCODER_PATH), (BATCHING,)),
    "preprocessing": ((TOKENIZER_DIR,),),
    "postprocessing": ((TOKENIZER_DIR,),),
}


def check_required(view: RepositoryView) -> Iterator[CheckFinding]:
    """What a model does not start without."""
    for model in view.models.values():
        if model.config is None:
            continue
        parameters = model.config.parameters
        for names in REQUIRED.get(find_kind(model), ()):
            values = [parameters.get(name, "") for name in names]
            if any(value and "${" not in value for value in values):
                continue
            how = f'is still "{values[0]}"' if values[0] else "is empty" if names[0] in parameters else "is missing"
            yield found_parameter(
                model,
                names[0],
                "placeholder" if values[0] else "parameter-missing",
                "error",
                f"parameter {names[0]} of {model.name} {how}",
                "the model does not start without it",
                f"Set {names[0]} to {_example(names[0])}.",
            )
        value = parameters.get(BATCHING, "")
        if (
            find_kind(model) == "engine"
            and value
            and "${" not in value
            and value not in (*INFLIGHT_TYPES, *STATIC_TYPES)
        ):
            yield found_parameter(
                model,
                BATCHING,
                "parameter-value",
                "error",
                f'gpt_model_type of {model.name} is "{value}"',
                "the backend knows v1, inflight_batching and inflight_fused_batching alone",
                f"Set it to {INFLIGHT}.",
                INFLIGHT,
            )


def check_left_over(view: RepositoryView) -> Iterator[CheckFinding]:
    """Placeholders inside strings parse, so nothing fails at the start (B002)."""
    for model in view.models.values():
        if model.config is None:
            continue
        kind = find_kind(model)
        reported = {name for names in REQUIRED.get(kind, ()) for name in names[:1]}
        required = REQUIRED.get(kind, ())
        unset: list[str] = []
        for hole in model.lines.placeholders:
            key = hole.path[1] if len(hole.path) > 1 and hole.path[0] == "parameters" else ""
            if key in reported and not _is_stood_in(model, key, required):
                continue
            if (
                key
                and (kind != "other" or _encodes_pictures(model))
                and not is_ours(model)
                and is_placeholder(model.config.parameters.get(key, ""))
            ):
                unset.append(key)
            else:
                yield _left(model, hole.line, ".".join(hole.path), hole.name)
        if unset:
            yield found_parameter(
                model,
                unset[0],
                "placeholder-unset",
                "note",
                f"parameters of {model.name} that are still placeholders: {listed(unset)}",
                "NVIDIA's own code reads them as unset and takes its defaults",
                "Write the values you mean, or remove these parameters.",
            )


def check_known(view: RepositoryView) -> Iterator[CheckFinding]:
    """A parameter that the version does not know is ignored without a word."""
    for model in view.models.values():
        template = view.dialect.models.get(find_dialect_name(model) or "")
        if model.config is None or template is None or is_ours(model):
            continue
        known = [*template.parameters, *template.fixed_parameters]
        for key in model.config.parameters:
            if key in known:
                continue
            near = difflib.get_close_matches(key, known, 1, 0.8)
            others = [
                version
                for version in RECORDED_VERSIONS
                if key in getattr(load_recorded(version).models.get(template.name), "parameters", ())
            ]
            hint = f"; did you mean {near[0]}?" if near else f"; {', '.join(others)} know it" if others else ""
            yield found_parameter(
                model,
                key,
                "parameter-unknown",
                "warning",
                f"parameter {key} is unknown to {template.name} of TensorRT-LLM {view.dialect.recorded}{hint}",
                "it is ignored without a word",
                f"Rename it to {near[0]}." if near else f"Remove {key}, or use the version that knows it.",
            )


def _encodes_pictures(model: ModelView) -> bool:
    """NVIDIA's multimodal_encoders, which needs other parameters for each kind of model (docs/multimodal.md)."""
    outputs = model.config.outputs if model.config else ()
    return any(tensor.name == "OUT_PROMPT_EMBEDDING_TABLE" for tensor in outputs)


def _is_stood_in(model: ModelView, key: str, required: tuple[tuple[str, ...], ...]) -> bool:
    """Whether another parameter has the value that ``key`` was left without, so that nothing was reported."""
    parameters = model.config.parameters if model.config else {}
    names = next((row for row in required if row[0] == key), ())
    return any((value := parameters.get(name, "")) and "${" not in value for name in names[1:])


def _left(model: ModelView, line: int, field: str, name: str) -> CheckFinding:
    return CheckFinding(
        "placeholder",
        "warning" if field.startswith("parameters.") and not is_ours(model) else "error",
        model.file,
        line,
        f"{field or model.name} still holds the template's ${{{name}}}",
        "it parses as a text like any other, so it is found out by the first request that needs it",
        f"Fill it in: fill_template.py -i {model.file} {name}:VALUE",
    )


def _example(name: str) -> str:
    if name == BATCHING:
        return INFLIGHT
    return (
        "the engine's folder as Triton sees it" if name == ENGINE_PATH else "the tokenizer's folder as Triton sees it"
    )


RULES = (check_required, check_left_over, check_known)
