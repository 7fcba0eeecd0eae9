"""Clients that leave: what they asked for ends at once, and nobody else notices."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from trt_spec.serve.contract import STREAMING_MODEL

MAX_TOKENS = 60
TEXTS = [f"prompt {i} {'x' * (i % 30)}" for i in range(200)]


def read_metric(server, name, outcome=""):
    """The value of one series of the streaming model."""
    with urllib.request.urlopen(f"http://{server.host}:{server.metrics_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [f'model="{STREAMING_MODEL}"', *([f'outcome="{outcome}"'] if outcome else [])]
    (line,) = [row for row in lines if row.startswith(name + "{") and all(label in row for label in wanted)]
    return float(line.rpartition(" ")[2])


class GrpcStream:
    """One streamed request on a connection of its own."""

    def __init__(self, server, text):
        self.text, self.done, self.error = "", threading.Event(), None
        self._client = grpcclient.InferenceServerClient(server.grpc_url)
        self._client.start_stream(self._collect)
        tensors = []
        for name, dtype, value in (("text_input", "BYTES", text.encode()), ("max_tokens", "INT32", MAX_TOKENS)):
            tensor = grpcclient.InferInput(name, [1, 1], dtype)
            tensor.set_data_from_numpy(np.array([[value]], np.object_ if dtype == "BYTES" else np.int32))
            tensors.append(tensor)
        stream = grpcclient.InferInput("stream", [1, 1], "BOOL")
        stream.set_data_from_numpy(np.array([[True]]))
        self._client.async_stream_infer(STREAMING_MODEL, [*tensors, stream])

    def _collect(self, result, error):
        if error is not None:
            self.error = error
            self.done.set()
            return
        self.text += result.as_numpy("text_output")[0].decode()
        if result.get_response().parameters["triton_final_response"].bool_param:
            self.done.set()

    def leave(self):
        self._client.stop_stream(cancel_requests=True)

    def answer(self):
        assert self.done.wait(120) and self.error is None, self.error
        self._client.stop_stream()
        return self.text


class HttpStream:
    """One streamed request on a socket of its own, as curl opens it."""

    def __init__(self, server, text):
        host, port = server.http_url.removeprefix("http://").split(":")
        body = json.dumps({"text_input": text, "max_tokens": MAX_TOKENS, "stream": True}).encode()
        head = (
            f"POST /v2/models/{STREAMING_MODEL}/generate_stream HTTP/1.1\r\nHost: {host}\r\n"
            f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.sendall(head.encode() + body)

    def leave(self):
        self._socket.close()

    def answer(self):
        told = b""
        while piece := self._socket.recv(1 << 16):
            told += piece
        self._socket.close()
        lines = [line for line in told.split(b"\n") if line.startswith(b"data: ")]
        return "".join(json.loads(line[6:])["text_output"] for line in lines)


def read_counts(server, before=None):
    """What became of the requests since ``before``, and how many are there still."""
    counts = {outcome: read_metric(server, "trtspec_requests_total", outcome) for outcome in ("answered", "cancelled")}
    if before:
        counts = {outcome: counts[outcome] - before[outcome] for outcome in counts}
    gauges = ("trtspec_running_requests", "trtspec_waiting_requests")
    return counts | {"open": sum(read_metric(server, name) for name in gauges)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GrpcStream, HttpStream])
def test_a_hundred_of_two_hundred_leave_and_their_work_ends(served, ask, kind):
    with ThreadPoolExecutor(16) as pool:
        expected = list(pool.map(lambda text: ask(text, max_tokens=MAX_TOKENS)["text_output"], TEXTS))
    before = read_counts(served)
    streams = [kind(served, text) for text in TEXTS]
    while sum(read_counts(served, before).values()) < len(TEXTS):
        time.sleep(0.01)  # who leaves before the server knows of it asks for nothing
    for stream in streams[0::2]:
        stream.leave()
    left = read_counts(served, before)
    samples = [left]
    with ThreadPoolExecutor(100) as pool:
        answers = [pool.submit(stream.answer) for stream in streams[1::2]]
        while not all(answer.done() for answer in answers):
            time.sleep(0.02)
            samples.append(read_counts(served, before))
    assert [answer.result() for answer in answers] == expected[1::2]
    deadline = time.monotonic() + 5
    while (ended := read_counts(served, before))["open"] and time.monotonic() < deadline:
        time.sleep(0.01)  # an answer is told before its place is free
    assert ended["answered"] + ended["cancelled"] == len(TEXTS)
    assert ended["open"] == 0
    assert ended["cancelled"] >= 50, ended  # the others had their answers before they could leave
    if kind is HttpStream:  # Triton learns of a closed connection when it writes to it: who waits ends at its turn
        return
    # Counted in requests, for seconds are the machine's: a few rounds later all have ended, long before their turn.
    answered_meanwhile = next(s for s in samples if s["cancelled"] == ended["cancelled"])["answered"] - left["answered"]
    assert answered_meanwhile < (ended["answered"] - left["answered"]) / 2


@pytest.mark.parametrize("kind", [GrpcStream, HttpStream])
def test_those_that_leave_in_mid_answer_are_not_answered_to_the_end(served, kind):
    before = read_counts(served)
    rounds, texts = 5, TEXTS[:4]
    for done in range(0, rounds * len(texts), len(texts)):
        streams = [kind(served, text) for text in texts]
        while sum(read_counts(served, before).values()) < done + len(texts):
            time.sleep(0.001)
        for stream in streams:
            stream.leave()
        while read_counts(served, before)["open"]:
            time.sleep(0.01)
    ended = read_counts(served, before)
    assert ended["answered"] + ended["cancelled"] == rounds * len(texts)
    assert ended["cancelled"] >= rounds, ended  # the others had their answers before they could leave


@pytest.mark.parametrize("kind", [GrpcStream, HttpStream])
def test_b103_one_that_leaves_in_mid_answer_leaves_the_others_alone(served, ask, kind):
    texts = TEXTS[:4]
    expected = [ask(text, max_tokens=MAX_TOKENS)["text_output"] for text in texts]
    for _ in range(5):
        first, *others = [kind(served, text) for text in texts]
        if kind is GrpcStream:
            while not first.text:
                time.sleep(0.001)
        else:
            first._socket.recv(256)
        first.leave()
        assert [other.answer() for other in others] == expected[1:]
    with urllib.request.urlopen(f"{served.http_url}/v2/health/ready", timeout=10) as ready:
        assert ready.status == 200
