"""Requests and responses as the official client of Triton writes and reads them."""

import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2

from trt_spec.openai.wire import Speculation, build_request, read_piece

VALUES = {
    "text_input": "héllo 😀",
    "max_tokens": 7,
    "stream": True,
    "temperature": 0.5,
    "seed": 2**64 - 1,
    "stop_words": ["a", "안"],
    "embedding_bias_weights": [-1.5, 2.0],
}
NUMPY = {"BYTES": np.object_, "INT32": np.int32, "BOOL": np.bool_, "FP32": np.float32, "UINT64": np.uint64}


def test_a_request_is_what_tritonclient_would_send():
    request = build_request(service_pb2, "id-1", VALUES)
    assert (request.model_name, request.id) == ("ensemble", "id-1")
    assert request.parameters["triton_enable_empty_final_response"].bool_param
    for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        value = VALUES[tensor.name]
        row = value if isinstance(value, list) else [value]
        row = [text.encode() if isinstance(text, str) else text for text in row]
        theirs = triton.InferInput(tensor.name, [1, len(row)], tensor.datatype)
        theirs.set_data_from_numpy(np.array([row], NUMPY[tensor.datatype]))
        assert list(tensor.shape) == theirs.shape()
        assert raw == theirs._get_content()
    assert [tensor.name for tensor in request.inputs] == list(VALUES)


def respond(final, **outputs):
    response = service_pb2.ModelInferResponse()
    response.parameters["triton_final_response"].bool_param = final
    for name, raw in outputs.items():
        response.outputs.add(name=name)
        response.raw_output_contents.append(raw)
    return response


def test_a_piece_is_what_the_orchestrator_says():
    text = "안녕".encode()
    piece = read_piece(
        respond(
            False,
            output_ids=np.array([5, 6], np.int32).tobytes(),
            text_output=len(text).to_bytes(4, "little") + text,
            output_log_probs=np.array([-0.5, -1.0], np.float32).tobytes(),
            total_draft_tokens=np.int32(8).tobytes(),
            total_accepted_draft_tokens=np.int32(3).tobytes(),
            draft_rounds=np.int32(2).tobytes(),
            round_draft_tokens=np.array([4, 4], np.int32).tobytes(),
            round_accepted_draft_tokens=np.array([3, 0], np.int32).tobytes(),
            draft_fallback=b"\x01",
        )
    )
    assert (piece.text, piece.ids, piece.log_probs, piece.is_final) == ("안녕", (5, 6), (-0.5, -1.0), False)
    assert piece.speculation() == Speculation(8, 3, 2, True, (4, 4), (3, 0))


def test_a_final_response_may_be_empty():
    piece = read_piece(respond(True))
    assert (piece.text, piece.ids, piece.is_final, piece.outputs) == ("", (), True, {})
    assert piece.speculation() == Speculation()
