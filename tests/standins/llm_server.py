"""Stands in for LLM servers: Triton over gRPC and HTTP and an OpenAI-compatible one, with a clock for a model.

Token k of an answer goes out ``first_s + k * token_s`` after the request came, so a client's measures can be checked.
Run as a program it prints its ports as one JSON line and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from dataclasses import dataclass, field

import grpc
from aiohttp import web
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

MODEL = "ensemble"
INPUTS = {
    "text_input": "STRING",
    "max_tokens": "INT32",
    "min_tokens": "INT32",
    "num_draft_tokens": "INT32",
    "stream": "BOOL",
    "top_k": "INT32",
    "temperature": "FP32",
    "seed": "UINT64",
    "exclude_input_in_output": "BOOL",
    "return_perf_metrics": "BOOL",
}
LLMAPI_INPUTS = {
    "text_input": "STRING",
    "streaming": "BOOL",
    "sampling_param_max_tokens": "INT32",
    "sampling_param_seed": "UINT64",
}
OUTPUTS = {
    "text_output": "STRING",
    "output_ids": "INT32",
    "total_draft_tokens": "INT32",
    "total_accepted_draft_tokens": "INT32",
    "round_draft_tokens": "INT32",
    "round_accepted_draft_tokens": "INT32",
}


@dataclass
class Behaviour:
    """How it answers; the defaults are a fast honest server without drafts."""

    first_s: float = 0.0
    token_s: float = 0.0
    tokens_per_message: int = 1
    decoupled: bool = True
    llmapi: bool = False  # the LLM API model's tensors; texts grow
    tells_ids: bool = True
    tells_usage: bool = True
    models: tuple[str, ...] = (MODEL,)
    hang_on: str | None = None  # a text that is never answered
    stall_on: str | None = None  # a text whose answer stops after the first message
    refuse: str | None = None  # a text that is refused
    break_on: str | None = None  # a text whose answer ends in an error after the first message
    garble_on: str | None = None  # a text whose events are no JSON
    requests: list[dict] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    cancelled: int = 0


class Broken(Exception):
    """The answer ends in an error here."""


async def answer(behaviour: Behaviour, text: str, max_tokens: int):
    """Yields (words so far, new words) a message."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    sent = 0
    behaviour.in_flight += 1
    behaviour.most_in_flight = max(behaviour.most_in_flight, behaviour.in_flight)
    try:
        if behaviour.hang_on and behaviour.hang_on in text:
            await asyncio.sleep(3600)
        while sent < max_tokens:
            new = min(behaviour.tokens_per_message, max_tokens - sent)
            due = begun + behaviour.first_s + (sent + new - 1) * behaviour.token_s
            await asyncio.sleep(max(0.0, due - loop.time()))
            yield [f"w{index}" for index in range(sent + new)], [f"w{index}" for index in range(sent, sent + new)]
            sent += new
            if behaviour.stall_on and behaviour.stall_on in text:
                await asyncio.sleep(3600)
            if behaviour.break_on and behaviour.break_on in text:
                raise Broken("the engine broke")
    except (asyncio.CancelledError, GeneratorExit):
        behaviour.cancelled += 1
        raise
    finally:
        behaviour.in_flight -= 1


def outputs_of(behaviour: Behaviour, words: list[str], new: list[str]) -> dict:
    if behaviour.llmapi:
        return {"text_output": " ".join(words)}
    outputs: dict = {"text_output": "".join(f" {word}" for word in new)}
    if behaviour.tells_ids:
        rounds = -(-len(words) // behaviour.tokens_per_message)
        kept = behaviour.tokens_per_message - 1
        outputs |= {
            "output_ids": [int(word[1:]) for word in new],
            "total_draft_tokens": 4 * rounds,
            "total_accepted_draft_tokens": kept * rounds,
            "round_draft_tokens": [4] * rounds,
            "round_accepted_draft_tokens": [kept] * rounds,
        }
    return outputs


# -- HTTP ------------------------------------------------------------------------------------------------------------


def http_app(behaviour: Behaviour) -> web.Application:
    app = web.Application()
    routes = HttpRoutes(behaviour)
    app.add_routes(
        [
            web.get("/v2/models/{model}/config", routes.config),
            web.post("/v2/models/{model}/generate_stream", routes.generate_stream),
            web.get("/v1/models", routes.models),
            web.post("/v1/completions", routes.completions),
            web.post("/v1/chat/completions", routes.chat),
        ]
    )
    return app


class HttpRoutes:
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    async def config(self, request):
        name = request.match_info["model"]
        if name not in self.behaviour.models:
            return web.json_response({"error": f"Request for unknown model: '{name}' is not found"}, status=400)
        inputs = LLMAPI_INPUTS if self.behaviour.llmapi else INPUTS
        return web.json_response(
            {
                "name": name,
                "input": [{"name": key, "data_type": f"TYPE_{dtype}", "dims": [1]} for key, dtype in inputs.items()],
                "output": [{"name": key, "data_type": f"TYPE_{dtype}"} for key, dtype in OUTPUTS.items()],
                "model_transaction_policy": {"decoupled": self.behaviour.decoupled},
            }
        )

    async def models(self, _):
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.behaviour.models]})

    async def generate_stream(self, request):
        body = await request.json()
        tokens = body.get("max_tokens", body.get("sampling_param_max_tokens"))
        return await self._stream(
            request, body, body["text_input"], tokens, lambda words, new: outputs_of(self.behaviour, words, new)
        )

    async def completions(self, request):
        body = await request.json()

        def event(_, new):
            return {"choices": [{"index": 0, "text": "".join(f" {word}" for word in new)}]}

        return await self._stream(request, body, body["prompt"], body["max_tokens"], event, openai=True)

    async def chat(self, request):
        body = await request.json()

        def event(_, new):
            return {"choices": [{"index": 0, "delta": {"content": "".join(f" {word}" for word in new)}}]}

        text = body["messages"][-1]["content"]
        return await self._stream(request, body, text, body["max_tokens"], event, openai=True)

    async def _stream(self, request, body, text, max_tokens, event, *, openai=False):
        behaviour = self.behaviour
        behaviour.requests.append(body)
        if behaviour.refuse and behaviour.refuse in text:
            return web.json_response({"error": "this prompt is refused"}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        garbled = behaviour.garble_on and behaviour.garble_on in text
        if openai and not garbled:
            await response.write(b'data: {"choices": [{"index": 0, "delta": {"role": "assistant"}}]}\n\n')
        try:
            async for words, new in answer(behaviour, text, max_tokens):
                data = b"{nonsense" if garbled else json.dumps(event(words, new)).encode()
                await response.write(b"data: " + data + b"\n\n")
        except Broken as error:
            await response.write(b"data: " + json.dumps({"error": str(error)}).encode() + b"\n\n")
            return response
        if openai:
            if behaviour.tells_usage and body.get("stream_options", {}).get("include_usage"):
                await response.write(
                    b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": max_tokens}}).encode()
                    + b"\r\n\r\n"
                )  # fmt: skip
            await response.write(b"data: [DONE]\n\n")
        return response


# -- gRPC ------------------------------------------------------------------------------------------------------------


class GrpcServicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    async def ServerMetadata(self, request, context):  # noqa: N802 - names of the protocol
        return service_pb2.ServerMetadataResponse(name="standin", version="0")

    async def ModelConfig(self, request, context):  # noqa: N802
        if request.name not in self.behaviour.models:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found")
        config = model_config_pb2.ModelConfig(name=request.name)
        config.model_transaction_policy.decoupled = self.behaviour.decoupled
        inputs = LLMAPI_INPUTS if self.behaviour.llmapi else INPUTS
        for tensors, declared in ((config.input, inputs), (config.output, OUTPUTS)):
            for name, dtype in declared.items():
                tensors.add(name=name, data_type=model_config_pb2.DataType.Value(f"TYPE_{dtype}"), dims=[-1])
        return service_pb2.ModelConfigResponse(config=config)

    async def ModelStreamInfer(self, request_iterator, context):  # noqa: N802
        async for request in request_iterator:
            raw = {tensor.name: data for tensor, data in zip(request.inputs, request.raw_input_contents, strict=True)}
            text = raw["text_input"][4:].decode(errors="replace")
            tokens = raw.get("max_tokens", raw.get("sampling_param_max_tokens"))
            self.behaviour.requests.append(raw)
            if self.behaviour.refuse and self.behaviour.refuse in text:
                yield service_pb2.ModelStreamInferResponse(error_message="this prompt is refused")
                continue
            try:
                async for words, new in answer(self.behaviour, text, int.from_bytes(tokens, "little")):
                    yield service_pb2.ModelStreamInferResponse(
                        infer_response=to_response(outputs_of(self.behaviour, words, new))
                    )
            except Broken as error:
                yield service_pb2.ModelStreamInferResponse(error_message=str(error))


def to_response(outputs: dict) -> service_pb2.ModelInferResponse:
    response = service_pb2.ModelInferResponse(model_name=MODEL)
    for name, value in outputs.items():
        if isinstance(value, str):
            data = value.encode()
            response.outputs.add(name=name, datatype="BYTES", shape=[1, 1])
            response.raw_output_contents.append(len(data).to_bytes(4, "little") + data)
            continue
        numbers = value if isinstance(value, list) else [value]
        response.outputs.add(name=name, datatype="INT32", shape=[1, len(numbers)])
        response.raw_output_contents.append(b"".join(number.to_bytes(4, "little") for number in numbers))
    return response


class LlmServer:
    """Both servers in a thread of their own, on free ports of the loopback address."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self) -> None:
        runner = web.AppRunner(http_app(self.behaviour), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.http = f"http://127.0.0.1:{runner.addresses[0][1]}"
        server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(GrpcServicer(self.behaviour), server)
        self.grpc = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._ready.set()
        await self._stop.wait()
        await server.stop(None)
        await runner.cleanup()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--token-s", type=float, default=0.02)
    parser.add_argument("--first-s", type=float, default=0.02)
    given = parser.parse_args()
    server = LlmServer(Behaviour(first_s=given.first_s, token_s=given.token_s))
    print(json.dumps({"http": server.http, "grpc": server.grpc}), flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
