"""Requests that nobody should send: each gets one clear error, the server stays, and the next good one is answered."""

from __future__ import annotations

import json
import queue
import socket
import struct
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2

from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL
from trt_spec.verify.client import TritonClient

DTYPES = {
    "BYTES": np.object_, "INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64, "BOOL": np.bool_, "FP32": np.float32
}  # fmt: skip
GOOD = {"text_input": ("BYTES", [[b"hello"]]), "max_tokens": ("INT32", [[24]])}


def tensors_of(given: dict[str, tuple[str, Any]]) -> list[Any]:
    tensors = []
    for name, (dtype, values) in given.items():
        array = np.array(values, DTYPES[dtype])
        tensor = grpcclient.InferInput(name, list(array.shape), dtype)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


def words(count: int) -> tuple[str, Any]:
    return "BYTES", [[b"w%d" % i for i in range(count)]]


BAD = {
    "two prompts": ({"text_input": ("BYTES", [[b"a"], [b"b"]]), "max_tokens": ("INT32", [[4], [4]])}, "one prompt"),
    "a prompt of two parts": ({"text_input": ("BYTES", [[b"a", b"b"]])}, "shape|values"),
    "no batch dimension": ({"text_input": ("BYTES", [b"a"])}, "shape"),
    "no text": ({"text_input": None}, "text_input"),
    "no max_tokens": ({"max_tokens": None}, "max_tokens"),
    "empty text": ({"text_input": ("BYTES", [[b""]])}, "text_input is empty"),
    "garbage for text": ({"text_input": ("BYTES", [[b"\xff\xfe\x00\x80"]])}, "text_input is not valid UTF-8 at byte 0"),
    "half a character": ({"text_input": ("BYTES", [["é".encode()[:1]]])}, "not valid UTF-8"),
    "a surrogate in bytes": ({"text_input": ("BYTES", [[b"\xed\xa0\x80"]])}, "not valid UTF-8"),
    "a long prompt": ({"text_input": ("BYTES", [["안".encode() * 40]])}, "takes at most 64"),
    "a book": ({"text_input": ("BYTES", [[b"word " * 10**6]])}, "characters"),
    "the wrong type": ({"max_tokens": ("INT64", [[4]])}, "INT64"),
    "text as a number": ({"text_input": ("INT32", [[4]])}, "INT32"),
    "max_tokens twice": ({"max_tokens": ("INT32", [[4, 4]])}, "shape|values"),
    "max_tokens 0": ({"max_tokens": ("INT32", [[0]])}, "max_tokens is 0"),
    "max_tokens negative": ({"max_tokens": ("INT32", [[-(2**31)]])}, "max_tokens is -2147483648"),
    "max_tokens huge": ({"max_tokens": ("INT32", [[2**31 - 1]])}, "max_tokens is 2147483647, expected 1 to"),
    "min above max": ({"min_tokens": ("INT32", [[25]])}, "min_tokens is 25, more than max_tokens 24"),
    "min_tokens negative": ({"min_tokens": ("INT32", [[-1]])}, "min_tokens is -1"),
    "temperature NaN": ({"temperature": ("FP32", [[np.nan]])}, "temperature is nan"),
    "temperature infinite": ({"temperature": ("FP32", [[np.inf]])}, "temperature is inf"),
    "top_p NaN": ({"top_p": ("FP32", [[np.nan]])}, "top_p is nan"),
    "top_p 100": ({"top_p": ("FP32", [[100.0]])}, "top_p is 100"),
    "top_p negative": ({"top_p": ("FP32", [[-0.1]])}, "top_p is -0.1"),
    "temperature negative": ({"temperature": ("FP32", [[-1.0]])}, "temperature is -1"),
    "top_k negative": ({"top_k": ("INT32", [[-1]])}, "top_k is -1"),
    "penalty NaN": ({"repetition_penalty": ("FP32", [[np.nan]])}, "repetition_penalty is nan"),
    "penalty negative": ({"repetition_penalty": ("FP32", [[-1.0]])}, "repetition_penalty is -1"),
    "penalty infinite": ({"frequency_penalty": ("FP32", [[np.inf]])}, "frequency_penalty is inf"),
    "300 stop words": ({"stop_words": words(300)}, "stop_words has 300 words"),
    "300 bad words": ({"bad_words": words(300)}, "bad_words has 300 words"),
    "a stop word of garbage": ({"stop_words": ("BYTES", [[b"\xff"]])}, "stop_words is not valid UTF-8"),
    "a stop word of a book": ({"stop_words": ("BYTES", [[b"w" * 10**6]])}, "stop_words has 1000000 characters in all"),
    "bias without a weight": ({"embedding_bias_words": words(2)}, "one weight for each word"),
    "two seeds": ({"seed": ("UINT64", [[1]]), "random_seed": ("UINT64", [[2]])}, "two names of one input"),
    "too many drafts": ({"num_draft_tokens": ("INT32", [[99]])}, "num_draft_tokens is 99"),
    "fewer than no drafts": ({"num_draft_tokens": ("INT32", [[-1]])}, "num_draft_tokens is -1"),
    "context logits": ({"return_context_logits": ("BOOL", [[True]])}, "return_context_logits"),
    "an input nobody has": ({"temprature": ("FP32", [[1.0]])}, "temprature"),
    "beams": ({"beam_width": ("INT32", [[4]])}, "beam_width 4 is not supported"),
    "answers": ({"num_return_sequences": ("INT32", [[3]])}, "num_return_sequences 3 is not supported"),
    "a grammar": ({"guided_decoding_guide_type": ("BYTES", [[b"json"]])}, "guided_decoding_guide_type"),
    "an adapter": ({"lora_task_id": ("UINT64", [[1]])}, "lora_task_id"),
}


@pytest.fixture
def client(served):
    with grpcclient.InferenceServerClient(served.grpc_url) as opened:
        yield opened


def infer_unary(client, given):
    return client.infer(UNARY_MODEL, tensors_of(given), client_timeout=60)


def infer_streaming(client, given):
    """The first response, or its error raised; there must be one of them only if it is an error."""
    told: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    client.start_stream(lambda result, error: told.put((result, error)))
    try:
        client.async_stream_infer(STREAMING_MODEL, tensors_of(given))
        result, error = told.get(timeout=60)
        if error is not None:
            raise error
        return result
    finally:
        client.stop_stream()
        assert error is None or told.empty()


def test_b089_every_bad_request_gets_one_error_and_the_next_good_one_its_answer(client, ask):
    expected = ask("hello")["text_output"]
    for infer in (infer_unary, infer_streaming):
        for fault, (changes, expected_words) in BAD.items():
            given = {name: values for name, values in {**GOOD, **changes}.items() if values is not None}
            with pytest.raises(grpcclient.InferenceServerException, match=expected_words):
                pytest.fail(f"{fault} was answered: {infer(client, given)}")
            assert infer_unary(client, GOOD).as_numpy("text_output")[0].decode() == expected, fault
    assert ask("hello", STREAMING_MODEL)["text_output"] == expected


def raw_request(**changes):
    """A request as it goes over the wire, where its parts may contradict each other."""
    request = service_pb2.ModelInferRequest(model_name=changes.get("model", UNARY_MODEL))
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
    request.inputs.add(name="max_tokens", datatype="INT32", shape=changes.get("shape", [1, 1]))
    request.raw_input_contents.extend([changes.get("text", b"\x05\0\0\0hello"), changes.get("tokens", b"\x18\0\0\0")])
    return request


@pytest.mark.parametrize(
    "changes",
    [
        {"text": b""},
        {"text": b"\xff"},
        {"text": b"\xff\xff\xff\xffhello"},
        {"text": b"\x05\0\0\0hello\x05\0\0\0hello"},
        {"text": b"\x09\0\0\0hello"},
        {"tokens": b"\x18\0"},
        {"tokens": b"\x18\0\0\0" * 2},
        {"shape": [1, 2]},
        {"shape": [-1, -1]},
        {"model": "no_such_model"},
    ],
    ids=str,
)
def test_bytes_that_contradict_their_header_are_refused(client, changes):
    with pytest.raises(Exception, match=r"(?i)input|shape|model|byte|batch|dim"):
        client._client_stub.ModelInfer(raw_request(**changes), timeout=60)
    answer = client._client_stub.ModelInfer(raw_request(), timeout=60)
    length = struct.unpack("<I", answer.raw_output_contents[0][:4])[0] if answer.raw_output_contents else 0
    assert answer.outputs[0].name == "text_output" and length > 0


BODIES = {
    "nothing": b"",
    "a brace": b"{",
    "NUL": b"\0",
    "white space": b" \n ",
    "a list": b"[]",
    "a number": b"7",
    "a string": b'"hello"',
    "a lone surrogate": b'{"text_input": "\\ud800", "max_tokens": 4}',
    "a lone low surrogate": b'{"text_input": "a\\udc00b", "max_tokens": 4}',
    "bytes": b'{"text_input": "\xff\xfe", "max_tokens": 4}',
    "NaN": b'{"text_input": "a", "max_tokens": 4, "temperature": NaN}',
    "a deep nest": b'{"text_input": ' + b"[" * 2000 + b"]" * 2000 + b', "max_tokens": 4}',
    "a number beyond its type": b'{"text_input": "a", "max_tokens": 99999999999999999999}',
    "a text for a number": b'{"text_input": "a", "max_tokens": "4"}',
    "a null": b'{"text_input": null, "max_tokens": 4}',
    "two texts": b'{"text_input": ["a", "b"], "max_tokens": 4}',
}


@pytest.mark.parametrize("fault", BODIES)
def test_b091_what_is_no_request_is_refused_and_the_server_lives(served, post, ask, fault):
    for model in (UNARY_MODEL, STREAMING_MODEL):
        status, answer = post(served, f"{model}/generate", BODIES[fault])
        assert status in (400, 500)
        assert len(answer["error"]) > 10
    assert ask("hello")["text_output"] == ask("hello", STREAMING_MODEL)["text_output"] != ""
    with urllib.request.urlopen(f"{served.http_url}/v2/health/ready", timeout=10) as ready:
        assert ready.status == 200


def test_b085_a_stream_from_the_model_of_one_response_is_refused_with_the_one_to_ask(served, post, ask):
    body = {"text_input": "hello", "max_tokens": 4, "stream": True}
    for path in (f"{UNARY_MODEL}/generate", f"{UNARY_MODEL}/generate_stream"):
        if path.endswith("generate"):
            status, answer = post(served, path, body)
            assert (status, "ensemble" in answer["error"]) == (400, True)
        else:
            request = urllib.request.Request(f"{served.http_url}/v2/models/{path}", json.dumps(body).encode())
            try:
                with urllib.request.urlopen(request, timeout=60) as answered:
                    told = answered.read().decode()
            except urllib.error.HTTPError as error:
                told = error.read().decode()
            assert "stream from the model ensemble" in told
    with grpcclient.InferenceServerClient(served.grpc_url) as client, pytest.raises(Exception, match="decoupled"):
        client.infer(STREAMING_MODEL, tensors_of(GOOD))
    assert ask("hello")["text_output"]


def test_a_connection_that_ends_in_the_middle_of_a_request_harms_nobody(served, ask):
    expected = ask("hello")["text_output"]
    host, port = served.http_url.removeprefix("http://").split(":")
    head = f"POST /v2/models/{UNARY_MODEL}/generate HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n"
    for sent in (head, head + '{"text_input": "a"', "GET", "\0\0\0\0"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent.encode())
    assert ask("hello")["text_output"] == expected


def test_b007_both_engines_leave_the_prompt_out_whatever_their_default(served):
    """The orchestrator asks for it in every call, and verify's client knows an engine that does not listen."""
    with TritonClient(served.grpc_url, deadline_s=60) as client:
        for model in ("tensorrt_llm", "tensorrt_llm_draft"):
            assert len(client.generate_from_ids(model, (5, 6, 7), 4, (), label=model)) == 4
        first = client.infer("hello", 8, 4, label="hello").rounds[0]
    assert first.drafted == 4
