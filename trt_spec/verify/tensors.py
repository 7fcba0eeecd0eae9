"""What a served model declares about itself, and request tensors built to that declaration.

Data types changed between versions of the templates (end_id was UINT32 once), so they are read from the server and
never assumed. Every tensor carries the leading batch dimension of 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trt_spec.serve.contract import MIN_TOKENS_NAMES, SEED_NAMES

# Triton's data types and numpy's name of each.
_NUMPY_DTYPE = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "object",
}


@dataclass(frozen=True)
class ModelInterface:
    """Input tensor names with their Triton data types, output names and parameters of one served model.

    A ``decoupled`` model gives any number of responses, another exactly one.
    """

    name: str
    inputs: Mapping[str, str]
    outputs: frozenset[str]
    parameters: Mapping[str, str]
    decoupled: bool = False

    @property
    def min_tokens_name(self) -> str | None:
        """How this dialect calls the minimum length, if it has one."""
        return next((name for name in MIN_TOKENS_NAMES if name in self.inputs), None)

    @property
    def seed_name(self) -> str | None:
        """How this dialect calls the seed, if it has one."""
        return next((name for name in SEED_NAMES if name in self.inputs), None)

    def int_parameter(self, name: str) -> int | None:
        """A whole-number parameter of the model's config, None when it is absent or not a number."""
        try:
            return int(self.parameters.get(name, ""))
        except ValueError:
            return None


def read_interface(config: Any) -> ModelInterface:
    """From a ModelConfig message of Triton."""
    type_names = config.DESCRIPTOR.fields_by_name["input"].message_type.fields_by_name["data_type"].enum_type
    return ModelInterface(
        name=config.name,
        inputs={tensor.name: _triton_dtype(type_names, tensor.data_type) for tensor in config.input},
        outputs=frozenset(tensor.name for tensor in config.output),
        parameters={key: value.string_value for key, value in config.parameters.items()},
        decoupled=config.model_transaction_policy.decoupled,
    )


def _triton_dtype(type_names: Any, number: int) -> str:
    return wire_dtype(str(type_names.values_by_number[number].name))


def wire_dtype(config_name: str) -> str:
    """What a request calls a data type of a config.pbtxt: INT32 for TYPE_INT32, BYTES for TYPE_STRING."""
    name = config_name.removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def is_sendable(dtype: str) -> bool:
    """Whether numpy has Triton's data type: it has no BF16."""
    return dtype in _NUMPY_DTYPE


def build_inputs(interface: ModelInterface, values: Mapping[str, Any]) -> list[Any]:
    """tritonclient InferInput objects for the values that the model declares; undeclared ones are left out.

    A scalar becomes a tensor of shape [1, 1], a flat sequence [1, n], a sequence of sequences [1, rows, n].
    """
    from tritonclient.grpc import InferInput

    tensors = []
    for name, value in values.items():
        dtype = interface.inputs.get(name)
        if dtype is None:
            continue
        array = _to_array(value, dtype)
        tensor = InferInput(name, list(array.shape), dtype)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


def _to_array(value: Any, dtype: str) -> Any:
    import numpy as np

    rows: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    rows = [row.encode("utf-8") if isinstance(row, str) else row for row in rows]
    return np.asarray([rows], dtype=np.dtype(_NUMPY_DTYPE[dtype]))


def read_ints(result: Any, name: str) -> tuple[int, ...] | None:
    """All values of an integer output, flat; None when the response lacks it."""
    array = result.as_numpy(name)
    return None if array is None else tuple(int(value) for value in array.reshape(-1))


def read_text(result: Any, name: str) -> str:
    """A text output, empty when the response lacks it."""
    array = result.as_numpy(name)
    return "" if array is None else b"".join(array.reshape(-1)).decode("utf-8", errors="replace")
