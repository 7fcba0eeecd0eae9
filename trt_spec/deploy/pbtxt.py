"""config.pbtxt: typed values -> Triton's own protobuf message -> text, and back. Never a text template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trt_spec.errors import EnvironmentMissing, SpecError


@dataclass(frozen=True)
class Tensor:
    """One input or output of a model.

    ``dims`` leave out the batch dimension; -1 is a free one. ``reshape`` is the shape the model sees instead, also
    without the batch dimension: NVIDIA's templates turn most [1] scalars into [], so the model gets [batch].
    """

    name: str
    dtype: str  # as Triton names it: INT32, FP32, BOOL, STRING, ...
    dims: tuple[int, ...]
    optional: bool = False
    ragged: bool = False
    reshape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class InstanceGroup:
    """How many copies of a model run, and where."""

    count: int = 1
    kind: str = "KIND_CPU"


@dataclass(frozen=True)
class DynamicBatching:
    """When Triton hands waiting requests of a model over together; 0 in ``max_queue_size`` means no bound."""

    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    max_queue_size: int = 0


@dataclass(frozen=True)
class EnsembleStep:
    """One step of an ensemble: the maps lead from the model's own tensor names to those of the ensemble."""

    model_name: str
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


@dataclass(frozen=True)
class ModelConfig:
    """What trtspec says about one model of a repository; everything else is left to Triton."""

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    decoupled: bool = False
    instance_group: InstanceGroup | None = None
    dynamic_batching: DynamicBatching | None = None
    steps: tuple[EnsembleStep, ...] = ()


class PbtxtError(SpecError):
    """A config.pbtxt that does not parse; ``line`` counts from 1, None where protobuf does not say."""

    def __init__(self, source: str, reason: str, line: int | None) -> None:
        super().__init__(
            f"{source} is not a Triton model configuration: {reason}.",
            remedy="Write the repository again with `trtspec deploy`, or correct the line.",
        )
        self.reason = reason
        self.line = line


def render_pbtxt(config: ModelConfig) -> str:
    """Return the text of config.pbtxt.

    Raises EnvironmentMissing without tritonclient, SpecError for a value that Triton's schema refuses.
    """
    pb2, text_format = _import_schema()
    try:
        message = _to_message(pb2, config)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"The configuration of model {config.name!r} holds a value that Triton's schema refuses: {error}.",
            remedy="Correct the value in the spec.",
        ) from error
    text = str(text_format.MessageToString(message, as_utf8=True))
    if config.max_batch_size == 0:
        # proto3 leaves zeros out, and to Triton a missing max_batch_size is something to be filled in, not a zero.
        text += "max_batch_size: 0\n"
    return text


def parse_pbtxt(text: str, source: str = "config.pbtxt") -> ModelConfig:
    """Return the typed form of a config.pbtxt.

    Raises EnvironmentMissing without tritonclient, and PbtxtError naming ``source``, line and column of a fault.
    """
    pb2, text_format = _import_schema()
    message = pb2.ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise PbtxtError(source, str(error).rstrip("."), error.GetLine()) from error
    except ValueError as error:
        raise PbtxtError(source, str(error).rstrip("."), None) from error
    except RecursionError:
        raise PbtxtError(source, "it is nested too deeply", None) from None
    return _from_message(pb2, message)


def _to_message(pb2: Any, config: ModelConfig) -> Any:
    message = pb2.ModelConfig(name=config.name, max_batch_size=config.max_batch_size)
    if config.steps:
        message.platform = config.backend  # an ensemble has no backend, only a platform
    else:
        message.backend = config.backend
    for tensor in config.inputs:
        row = message.input.add(
            name=tensor.name,
            data_type=pb2.DataType.Value(f"TYPE_{tensor.dtype}"),
            dims=tensor.dims,
            optional=tensor.optional,
            allow_ragged_batch=tensor.ragged,
        )
        if tensor.reshape is not None:
            row.reshape.CopyFrom(pb2.ModelTensorReshape(shape=tensor.reshape))
    for tensor in config.outputs:
        row = message.output.add(
            name=tensor.name, data_type=pb2.DataType.Value(f"TYPE_{tensor.dtype}"), dims=tensor.dims
        )
        if tensor.reshape is not None:
            row.reshape.CopyFrom(pb2.ModelTensorReshape(shape=tensor.reshape))
    for key, value in config.parameters.items():
        message.parameters[key].string_value = value
    if config.instance_group is not None:
        kind = pb2.ModelInstanceGroup.Kind.Value(config.instance_group.kind)
        message.instance_group.add(count=config.instance_group.count, kind=kind)
    if config.dynamic_batching is not None:
        batching = message.dynamic_batching
        batching.preferred_batch_size.extend(config.dynamic_batching.preferred_batch_sizes)
        batching.max_queue_delay_microseconds = config.dynamic_batching.max_queue_delay_microseconds
        batching.default_queue_policy.max_queue_size = config.dynamic_batching.max_queue_size
    for step in config.steps:
        message.ensemble_scheduling.step.add(
            model_name=step.model_name, model_version=-1, input_map=step.input_map, output_map=step.output_map
        )
    message.model_transaction_policy.decoupled = config.decoupled
    return message


def _from_message(pb2: Any, message: Any) -> ModelConfig:
    group, batching = None, None
    if message.instance_group:
        first = message.instance_group[0]
        group = InstanceGroup(first.count, pb2.ModelInstanceGroup.Kind.Name(first.kind))
    if message.HasField("dynamic_batching"):
        batching = DynamicBatching(
            tuple(message.dynamic_batching.preferred_batch_size),
            message.dynamic_batching.max_queue_delay_microseconds,
            message.dynamic_batching.default_queue_policy.max_queue_size,
        )
    return ModelConfig(
        name=message.name,
        backend=message.backend or message.platform,
        max_batch_size=message.max_batch_size,
        inputs=tuple(_tensor(pb2, row, optional=row.optional, ragged=row.allow_ragged_batch) for row in message.input),
        outputs=tuple(_tensor(pb2, row) for row in message.output),
        parameters={key: message.parameters[key].string_value for key in sorted(message.parameters)},
        decoupled=message.model_transaction_policy.decoupled,
        instance_group=group,
        dynamic_batching=batching,
        steps=tuple(
            EnsembleStep(step.model_name, dict(step.input_map), dict(step.output_map))
            for step in message.ensemble_scheduling.step
        ),
    )


def _tensor(pb2: Any, row: Any, *, optional: bool = False, ragged: bool = False) -> Tensor:
    return Tensor(
        name=row.name,
        dtype=pb2.DataType.Name(row.data_type).removeprefix("TYPE_"),
        dims=tuple(row.dims),
        optional=optional,
        ragged=ragged,
        reshape=tuple(row.reshape.shape) if row.HasField("reshape") else None,
    )


def _import_schema() -> tuple[Any, Any]:
    """Return Triton's model_config_pb2 and protobuf's text_format; both come with tritonclient, and import grpc."""
    try:
        from google.protobuf import text_format
        from tritonclient.grpc import model_config_pb2
    except ImportError as error:
        raise EnvironmentMissing(
            f"config.pbtxt is written through tritonclient's protobuf schema, and it cannot be imported: {error}.",
            remedy="Install it with `pip install 'trtspec[local]'`.",
        ) from error
    return model_config_pb2, text_format
