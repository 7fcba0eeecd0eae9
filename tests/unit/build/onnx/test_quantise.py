import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from trt_spec.build.onnx.quantise import quantise
from trt_spec.plan.steps import BLOCK_SIZES
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.feed import Piece

MAX_INT8_ERROR = 0.05


def dequantise(weight, columns):
    """The float32 [out, columns] matrix that a QuantisedWeight stands for."""
    codes = weight.packed
    if weight.bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=3).reshape(*codes.shape[:2], -1)
    values = (codes.astype(np.float32) - (1 << (weight.bits - 1))) * weight.scales[:, :, None]
    return np.ascontiguousarray(values.reshape(len(values), -1)[:, :columns])


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 9), columns=st.integers(1, 300), bits=st.sampled_from((4, 8)), seed=st.integers(0, 2**32))
def test_the_error_is_at_most_half_a_step_but_one_code_at_the_far_end(rows, columns, bits, seed):
    weight = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    packed = quantise(weight, bits)
    steps = np.repeat(np.abs(packed.scales), BLOCK_SIZES[bits], axis=1)[:, :columns]
    # The range of codes is one short on the side away from the extreme: there the error may reach a whole step.
    assert (np.abs(dequantise(packed, columns) - weight) <= steps * 1.0001).all()
    middle = np.abs(weight) < steps * ((1 << (bits - 1)) - 1.5)
    assert (np.abs(dequantise(packed, columns) - weight)[middle] <= steps[middle] * 0.5001).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_zeros_stay_zeros(bits):
    assert not dequantise(quantise(np.zeros((3, 70), np.float32), bits), 70).any()


@pytest.mark.parametrize("bits", [4, 8])
def test_onnx_runtime_reads_the_layout_as_we_do(bits):
    rng = np.random.default_rng(bits)
    weight, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((24, 256), (5, 256)))
    packed = quantise(weight, bits)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "packed", "scales"],
        ["y"],
        domain="com.microsoft",
        K=256,
        N=24,
        bits=bits,
        block_size=packed.block,
    )
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 24])],
        [numpy_helper.from_array(packed.packed, "packed"), numpy_helper.from_array(packed.scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(["y"], {"x": x})
    np.testing.assert_allclose(y, x @ dequantise(packed, 256).T, atol=1e-4)


def test_an_int8_engine_stays_close_to_the_float_engine(build_tiny_engine, tiny):
    ids = np.load(tiny / "pair-target" / "reference.npz")["input_ids"][0].tolist()
    exact, quantised = (Engine(build_tiny_engine("pair-target", weight_bits=bits)) for bits in (32, 8))
    a, b = (e.forward([Piece(0, 0, ids, len(ids))])[0] for e in (exact, quantised))
    assert 0 < np.sqrt(np.mean((a - b) ** 2) / np.mean(a**2)) < MAX_INT8_ERROR
