"""Public clients as they are, against the real Triton, in each dialect of the tensors."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL

VERSIONS = ("0.17.0", "0.18.2", "1.2.1")
PROMPT = "안녕 hello 😀"
MAX_TOKENS = 20
DTYPES = {"BYTES": np.object_, "INT32": np.int32, "UINT64": np.uint64, "BOOL": np.bool_}


@pytest.fixture(scope="module", params=VERSIONS)
def server(request, served_in_dialect):
    return served_in_dialect(request.param)


def inputs_of(module, **more):
    """The tensors of a request for ``module``'s clients, all of shape [1, 1]; both names of the seed are known."""
    given = {
        "text_input": ("BYTES", PROMPT.encode()),
        "max_tokens": ("INT32", MAX_TOKENS),
        "random_seed": ("UINT64", 0),
        "seed": ("UINT64", 0),
        **more,
    }
    tensors = []
    for name, (dtype, value) in given.items():
        tensor = module.InferInput(name, [1, 1], dtype)
        tensor.set_data_from_numpy(np.array([[value]], DTYPES[dtype]))
        tensors.append(tensor)
    return tensors


def streaming(module):
    return inputs_of(module, stream=("BOOL", True))


def address(server):
    return server.http_url.removeprefix("http://")


@pytest.fixture(scope="module")
def expected(server):
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        result = client.infer(UNARY_MODEL, inputs_of(tritonclient.grpc, num_draft_tokens=("INT32", 0)))
    text = result.as_numpy("text_output")[0].decode()
    assert len(text) >= 8
    return text


def test_tritonclient_http(server, expected):
    with tritonclient.http.InferenceServerClient(address(server)) as client:
        result = client.infer(UNARY_MODEL, inputs_of(tritonclient.http))
    assert result.as_numpy("text_output")[0].decode() == expected
    assert result.as_numpy("total_draft_tokens")[0, 0] > 0


def test_tritonclient_grpc(server, expected):
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        result = client.infer(UNARY_MODEL, inputs_of(tritonclient.grpc))
    assert result.as_numpy("text_output")[0].decode() == expected


def test_tritonclient_grpc_stream(server, expected):
    pieces, done = [], threading.Event()

    def collect(result, error):
        pieces.append(error or result.as_numpy("text_output"))
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            done.set()

    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(collect)
        client.async_stream_infer(
            STREAMING_MODEL, streaming(tritonclient.grpc), enable_empty_final_response=True, request_id="7"
        )
        assert done.wait(60)
        client.stop_stream()
    assert "".join(piece[0].decode() for piece in pieces if piece is not None) == expected
    assert len(pieces) > 2


@pytest.mark.parametrize("max_tokens", [1, 2, MAX_TOKENS])
def test_a_stream_says_its_end_to_a_client_that_asks_for_no_empty_response(server, max_tokens):
    done = threading.Event()

    def collect(result, error):
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            done.set()

    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(collect)
        inputs = inputs_of(tritonclient.grpc, stream=("BOOL", True), max_tokens=("INT32", max_tokens))
        client.async_stream_infer(STREAMING_MODEL, inputs)
        assert done.wait(30)
        client.stop_stream()


def test_tritonclient_http_aio(server, expected):
    async def infer():
        async with tritonclient.http.aio.InferenceServerClient(address(server)) as client:
            calls = [client.infer(UNARY_MODEL, inputs_of(tritonclient.http)) for _ in range(3)]
            return await asyncio.gather(*calls)

    assert {result.as_numpy("text_output")[0].decode() for result in asyncio.run(infer())} == {expected}


def test_tritonclient_grpc_aio(server, expected):
    async def infer():
        async with tritonclient.grpc.aio.InferenceServerClient(server.grpc_url) as client:
            result = await client.infer(UNARY_MODEL, inputs_of(tritonclient.grpc))
            return result.as_numpy("text_output")[0].decode()

    assert asyncio.run(infer()) == expected


def test_tritonclient_grpc_aio_stream(server, expected):
    async def pieces():
        async def requests():
            yield {"model_name": STREAMING_MODEL, "inputs": streaming(tritonclient.grpc)}

        async with tritonclient.grpc.aio.InferenceServerClient(server.grpc_url) as client:
            return [(result.as_numpy("text_output"), error) async for result, error in client.stream_infer(requests())]

    told = asyncio.run(pieces())
    assert [error for _, error in told if error] == []
    assert "".join(piece[0].decode() for piece, _ in told if piece is not None) == expected
    assert len(told) > 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize(
    ("path", "more"),
    [
        (f"{UNARY_MODEL}/generate", {}),
        (f"{STREAMING_MODEL}/generate", {}),
        (f"{STREAMING_MODEL}/generate_stream", {"stream": True}),
    ],
)
def test_curl(server, expected, path, more):
    body = {"text_input": PROMPT, "max_tokens": MAX_TOKENS, "bad_words": "", "stop_words": "", "random_seed": 1, **more}
    arguments = ["curl", "-sN", "--fail-with-body", f"{server.http_url}/v2/models/{path}", "-d", json.dumps(body)]
    told = subprocess.run(arguments, capture_output=True, timeout=60, check=True).stdout.decode()
    answers = [json.loads(line.removeprefix("data: ")) for line in told.splitlines() if line]
    assert "".join(answer["text_output"] for answer in answers) == expected
    assert (len(answers) > 2) == bool(more)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_llama_index(server, expected):
    """It asks ``ensemble``, sends ``random_seed`` to every version, and reads the first element of what comes."""
    from llama_index.llms.nvidia_triton import NvidiaTriton

    client = NvidiaTriton(server_url=server.grpc_url, tokens=MAX_TOKENS)
    assert client.complete(PROMPT).text == expected
    assert [part.delta for part in client.stream_complete(PROMPT)] != []
    assert list(client.stream_complete(PROMPT))[-1].text == expected
    assert client.model_name == STREAMING_MODEL
