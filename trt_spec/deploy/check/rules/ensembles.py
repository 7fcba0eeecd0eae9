"""Ensembles: every step's model is there, what it needs is fed, and every output of the ensemble is produced.

Source: triton-inference-server/core model_config_utils.cc (BuildEnsembleGraph, ValidateEnsembleSchedulingConfig).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.kinds import find_kind
from trt_spec.deploy.check.rules.report import found, listed
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import ENSEMBLE_PLATFORM
from trt_spec.deploy.pbtxt import EnsembleStep, ModelConfig, Tensor

Types = dict[str, str]  # Triton's types by tensor
_REFUSED = "Triton refuses the ensemble"
_STEPS = ("ensemble_scheduling", "step")


def check_ensembles(view: RepositoryView) -> Iterator[CheckFinding]:
    """All of Triton's own rules for the maps, and types through them."""
    for model in view.models.values():
        if model.config is None or find_kind(model) != "ensemble":
            continue
        config = model.config
        if config.backend != ENSEMBLE_PLATFORM:
            yield _report(model, ("platform",), 'its steps need platform: "ensemble"', 'Set platform: "ensemble".')
        if config.instance_group is not None:
            yield _report(model, ("instance_group",), "it has an instance_group", "Remove instance_group.")
        if not config.steps:
            yield _report(model, ("ensemble_scheduling",), "it has no step", "Add the steps of the pipeline.")
        have = listed(sorted(view.models))
        own = (_types(config.inputs), _types(config.outputs))
        for step in config.steps:
            yield from _check_step(view, model, step, own, have)
        yield from _check_flow(model, config)


def _check_step(
    view: RepositoryView, model: ModelView, step: EnsembleStep, own: tuple[Types, Types], have: str
) -> Iterator[CheckFinding]:
    name = step.model_name
    for field, mapped in (("input_map", step.input_map), ("output_map", step.output_map)):
        if not mapped:
            yield _report(model, (*_STEPS, name), f"step {name} has no {field}", f"Add {field} to the step.")
    called = view.models.get(name)
    if called is None:
        yield _report(
            model,
            (*_STEPS, name),
            f'step model "{name}" not found in repository (have: {have})',
            "Correct model_name, or add the model.",
            "model-not-found",
        )
        return
    if called.config is None:
        return  # reported already, and its tensors are not known
    for field, mapped, tensors in (
        ("input_map", step.input_map, called.config.inputs),
        ("output_map", step.output_map, called.config.outputs),
    ):
        known = {tensor.name for tensor in tensors}
        for tensor in mapped:
            if tensor not in known:
                yield _report(
                    model,
                    (*_STEPS, name, field, tensor),
                    f"{field} of step {name} names {tensor}, which {name} does not declare",
                    f"Declare {tensor} in {called.file}, or remove it from the map.",
                )
    unfed = [
        tensor.name for tensor in called.config.inputs if not tensor.optional and tensor.name not in step.input_map
    ]
    for tensor in unfed:
        yield _report(
            model,
            (*_STEPS, name, "input_map"),
            f"input_map of step {name} lacks {tensor}, which {name} needs in every request",
            f"Map {tensor} to an input of the ensemble or to an output of a step.",
        )
    yield from _check_types(model, step, called.config, own)


def _check_types(
    model: ModelView, step: EnsembleStep, called: ModelConfig, own: tuple[Types, Types]
) -> Iterator[CheckFinding]:
    """Tensors of the ensemble go to its steps unchanged, so both ends have one type."""
    for field, mapped, outer, inner in (
        ("input_map", step.input_map, own[0], called.inputs),
        ("output_map", step.output_map, own[1], called.outputs),
    ):
        types = _types(inner)
        for tensor, ensemble_tensor in mapped.items():
            if tensor in types and ensemble_tensor in outer and types[tensor] != outer[ensemble_tensor]:
                yield _report(
                    model,
                    (*_STEPS, step.model_name, field, tensor),
                    f"{ensemble_tensor} is TYPE_{outer[ensemble_tensor]} here and TYPE_{types[tensor]} as {tensor} of "
                    f"{step.model_name}",
                    "Give both the same data_type.",
                )


def _check_flow(model: ModelView, config: ModelConfig) -> Iterator[CheckFinding]:
    read = {tensor for step in config.steps for tensor in step.input_map.values()}
    inputs = {tensor.name for tensor in config.inputs}
    written: set[str] = set()
    for step in config.steps:
        for tensor in step.output_map.values():
            if tensor in written:
                what = f"{tensor} is written by more than one step"
                yield _report(model, (*_STEPS, step.model_name), what, "Give each output a name of its own.")
            written.add(tensor)
    outputs = {row.name for row in config.outputs}
    if not config.steps:
        return
    for tensor in sorted(inputs - read):
        yield _report(model, ("input", tensor), f"input {tensor} is used by no step", f"Map {tensor} in a step.")
    for tensor in dict.fromkeys(row.name for row in config.outputs):
        if tensor not in written:
            what = f"output {tensor} is written by no step"
            yield _report(model, ("output", tensor), what, f"Map an output of a step to {tensor}.")
    for step in config.steps:
        for name, tensor in step.input_map.items():
            if tensor not in inputs and tensor not in written:
                what = f"{name} of step {step.model_name} is mapped to {tensor}, which nothing writes"
                remedy = f"Declare {tensor} as an input, or map an output of a step to it."
                yield _report(model, (*_STEPS, step.model_name, "input_map", name), what, remedy)
        for name, tensor in step.output_map.items():
            if tensor not in read and tensor not in outputs:
                what = f"{name} of step {step.model_name} is mapped to {tensor}, which nothing reads"
                remedy = f"Declare {tensor} as an output, or remove it from output_map."
                yield _report(model, (*_STEPS, step.model_name, "output_map", name), what, remedy)


def _types(tensors: Sequence[Tensor]) -> Types:
    return {tensor.name: tensor.dtype for tensor in tensors}


def _report(
    model: ModelView, words: tuple[str, ...], what: str, remedy: str, code: str = "ensemble-map"
) -> CheckFinding:
    return found(model, words, code, "error", f"{model.name}: {what}", _REFUSED, remedy)


RULES = (check_ensembles,)
