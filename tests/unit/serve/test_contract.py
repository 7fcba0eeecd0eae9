"""Every input that the served models declare is honoured, known to be harmless, or refused: never dropped."""

import numpy as np
import pytest

from trt_spec.deploy.dialect import load_dialect
from trt_spec.deploy.repository import ADDED_INPUTS
from trt_spec.serve import text_request
from trt_spec.serve.contract import HARMLESS, NEUTRAL, STREAMING_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.serve.local_backend import engine_request
from trt_spec.serve.triton_request import BadRequest, TensorReader

READ = {
    TARGET_MODEL: engine_request.READ,
    UNARY_MODEL: text_request.READ,
    STREAMING_MODEL: text_request.READ,
}
ASKING = {"INT32": 7, "INT64": 7, "UINT8": 7, "UINT64": 7, "FP32": 0.7, "FP16": 0.7, "BOOL": True, "STRING": b"x"}
CASES = [
    (version, model, tensor)
    for version in ("0.17.0", "0.18.2", "1.2.1")
    for model in READ
    for tensor in (*load_dialect(version).models[model].inputs, *(ADDED_INPUTS if model != TARGET_MODEL else ()))
]


class Request:
    def __init__(self, name, values):
        self.name, self.as_numpy = lambda: name, lambda: values

    def inputs(self):
        return [self]


@pytest.mark.parametrize(("version", "model", "tensor"), CASES, ids=lambda value: getattr(value, "name", value))
def test_no_declared_input_is_dropped(version, model, tensor):
    value = ASKING[tensor.dtype]
    values = np.array([[value]], np.object_ if tensor.dtype == "STRING" else None)
    reader = TensorReader(Request(tensor.name, values))
    if tensor.name in READ[model] | HARMLESS or value in NEUTRAL.get(tensor.name, ()):
        reader.check_supported(READ[model])
    else:
        with pytest.raises(BadRequest, match=f"{tensor.name} .*not supported"):
            reader.check_supported(READ[model])


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_values_ask_for_nothing(name):
    for value in NEUTRAL[name]:
        TensorReader(Request(name, np.array([[value]]))).check_supported(frozenset())


@pytest.mark.parametrize("values", [np.array([[b"", b""]], np.object_), np.empty((1, 0), np.int32)])
def test_empty_values_ask_for_nothing(values):
    TensorReader(Request("bad_words", values)).check_supported(frozenset())
