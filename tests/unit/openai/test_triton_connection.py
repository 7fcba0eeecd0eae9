"""The connection to Triton, against a gRPC server that answers as Triton does."""

import asyncio

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from trt_spec.openai.api_error import ApiError
from trt_spec.openai.triton_connection import Limits, TritonConnection
from trt_spec.serve.admission import Admission
from trt_spec.serve.contract import CANCELLED, ORCHESTRATOR_FAILED, SERVER_STOPPING, TARGET_FAILED

VALUES = {"text_input": "hi", "max_tokens": 3}
LIMITS = {"max_input_len": 10, "max_output_len": 5, "max_seq_len": 20, "max_draft_len": 2}
LIMITS |= {"max_inflight_requests": 3, "max_queue_requests": 4}


class Refusal(str):
    """An error as the orchestrator's client sees it: words in the stream."""


class Server(service_pb2_grpc.GRPCInferenceServiceServicer):
    """``pieces`` are texts, or a gRPC status with its words to end with."""

    def __init__(self, pieces=("a", "b"), ready=True, parameters=LIMITS, pause_s=0.0):
        self.pieces, self.ready, self.parameters, self.pause_s = pieces, ready, parameters, pause_s
        self.ids, self.cancelled, self.metadata, self.config_calls = [], 0, {}, 0

    async def ModelReady(self, request, context):  # noqa: N802 - gRPC's name
        return service_pb2.ModelReadyResponse(ready=self.ready)

    async def ModelConfig(self, request, context):  # noqa: N802
        self.config_calls += 1
        await asyncio.sleep(self.pause_s)
        parameters = {
            name: model_config_pb2.ModelParameter(string_value=str(value)) for name, value in self.parameters.items()
        }
        return service_pb2.ModelConfigResponse(config=model_config_pb2.ModelConfig(parameters=parameters))

    async def ModelStreamInfer(self, requests, context):  # noqa: N802
        self.metadata = dict(context.invocation_metadata())
        try:
            async for request in requests:
                self.ids.append(request.id)
                for place, piece in enumerate(self.pieces):
                    await asyncio.sleep(self.pause_s)
                    if isinstance(piece, Refusal):
                        yield service_pb2.ModelStreamInferResponse(error_message=piece)
                        return
                    if isinstance(piece, tuple):
                        await context.abort(*piece)
                    response = service_pb2.ModelInferResponse()
                    response.outputs.add(name="text_output")
                    response.raw_output_contents.append(len(piece).to_bytes(4, "little") + piece.encode())
                    final = place == len(self.pieces) - 1
                    response.parameters["triton_final_response"].bool_param = final
                    yield service_pb2.ModelStreamInferResponse(infer_response=response)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def start(servicer, port=0):
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, port


def with_server(servicer, work, timeout_s=10.0):
    """What ``work(connection)`` returns, with ``servicer`` behind the connection."""

    async def run():
        server, port = await start(servicer)
        connection = TritonConnection(f"127.0.0.1:{port}", timeout_s)
        try:
            return await asyncio.wait_for(work(connection), 30)
        finally:
            await connection.close()
            await server.stop(None)

    return asyncio.run(run())


async def read_all(connection):
    return [piece.text async for piece in connection.generate("id-1", VALUES)]


def test_pieces_come_until_the_final_one():
    servicer = Server(["a", "", "é"])
    assert with_server(servicer, read_all) == ["a", "", "é"]
    assert servicer.ids == ["id-1"]
    assert "triton_grpc_error" not in servicer.metadata  # it lets Triton 24.10 abort


def test_limits_are_those_of_the_deployment():
    found = with_server(Server(), lambda connection: connection.limits())
    assert found == Limits(10, 5, 20, 2, 3, 4)
    assert found.max_requests == 7
    assert (found.room(10), found.room(16)) == (5, 2)
    with pytest.raises(ApiError, match="not trtspec's"):
        with_server(Server(parameters={}), lambda connection: connection.limits())


def test_who_asks_for_the_limits_at_once_shares_one_call():
    servicer = Server(pause_s=0.2)

    async def ask(connection):
        first = asyncio.create_task(connection.limits())
        await asyncio.sleep(0.05)
        first.cancel()  # it leaves; the others still get theirs
        found = await asyncio.gather(*(connection.limits() for _ in range(50)))
        return {*found, await connection.limits()}

    assert with_server(servicer, ask) == {Limits(10, 5, 20, 2, 3, 4)}
    assert servicer.config_calls == 1


@pytest.mark.parametrize(
    ("status", "ready", "expected"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, True, 400),
        (grpc.StatusCode.UNAVAILABLE, True, 429),
        (grpc.StatusCode.UNAVAILABLE, False, 503),
        (grpc.StatusCode.NOT_FOUND, True, 503),
        (grpc.StatusCode.CANCELLED, True, 503),
        (grpc.StatusCode.INTERNAL, True, 500),
        (grpc.StatusCode.UNKNOWN, True, 500),
    ],
)
@pytest.mark.parametrize("said", [[], ["word"]])
def test_every_status_of_triton_has_one_of_http(status, ready, expected, said):
    with pytest.raises(ApiError) as caught:
        with_server(Server([*said, (status, "the very words")], ready=ready), read_all)
    assert caught.value.status == expected
    assert ("the very words" in str(caught.value)) == (expected != 503)
    assert ("Retry-After" in caught.value.headers) == (expected in (429, 503))


async def _busy_words():
    with Admission(0, 0, None, lambda running, waiting: None).arrival():
        pass


def test_the_words_of_a_full_queue_are_those_of_the_orchestrator():
    with pytest.raises(Exception, match="waiting already") as caught:
        asyncio.run(_busy_words())
    with pytest.raises(ApiError) as refused:
        with_server(Server([Refusal(caught.value)]), read_all)
    assert refused.value.status == 429


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("max_tokens is 61, expected 1 to 60.", 400),
        (SERVER_STOPPING, 503),
        (CANCELLED, 503),
        ("Request for unknown model: 'ensemble' is not found", 503),
        (f"{TARGET_FAILED}: out of memory", 500),
        (f"{ORCHESTRATOR_FAILED}: x", 500),
    ],
)
@pytest.mark.parametrize("said", [[], ["word"]])
def test_words_of_the_orchestrator_have_a_status(words, expected, said):
    with pytest.raises(ApiError) as caught:
        with_server(Server([*said, Refusal(words)]), read_all)
    assert caught.value.status == expected


def test_an_answer_that_does_not_come_is_given_up():
    with pytest.raises(ApiError, match="no whole answer") as caught:
        with_server(Server(pause_s=30.0), read_all, timeout_s=0.2)
    assert caught.value.status == 504


def test_who_stops_reading_cancels_the_call():
    servicer = Server(["a"] * 100, pause_s=0.05)

    async def leave(connection):
        pieces = connection.generate("id-1", VALUES)
        await anext(pieces)
        await pieces.aclose()
        for _ in range(100):
            if servicer.cancelled:
                return
            await asyncio.sleep(0.05)

    with_server(servicer, leave)
    assert servicer.cancelled == 1


def test_a_server_may_go_and_come_back():
    async def run():
        server, port = await start(Server(["before"]))
        connection = TritonConnection(f"127.0.0.1:{port}", 10.0)
        found = [await read_all(connection), await connection.is_ready()]
        await server.stop(None)
        with pytest.raises(ApiError) as caught:
            await read_all(connection)
        found += [caught.value.status, await connection.is_ready()]
        server, _ = await start(Server(["after"]), port)
        for _ in range(100):
            if await connection.is_ready():
                break
            await asyncio.sleep(0.05)
        found.append(await read_all(connection))
        await connection.close()
        await server.stop(None)
        return found

    assert asyncio.run(run()) == [["before"], True, 503, False, ["after"]]
