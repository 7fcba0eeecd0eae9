"""A fake Triton for verify: a gRPC inference server in this process, with a toy language model behind it.

It is a fake, not Triton: it speaks the protocol and the tensors of a trtspec deployment, and can be told to misbehave.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

END_ID = 2
VOCABULARY = 300
_MODELS = ("tensorrt_llm", "tensorrt_llm_draft", "tensorrt_llm_bls", "ensemble")
_ENGINE_INPUTS = {
    "input_ids": "INT32",
    "input_lengths": "INT32",
    "request_output_len": "INT32",
    "end_id": "INT32",
    "stop_words_list": "INT32",
    "runtime_top_k": "INT32",
    "temperature": "FP32",
    "seed": "UINT64",
    "exclude_input_in_output": "BOOL",
    "streaming": "BOOL",
    "return_generation_logits": "BOOL",
}
_ENGINE_OUTPUTS = {"output_ids": "INT32", "sequence_length": "INT32", "generation_logits": "FP32"}
_TEXT_INPUTS = {
    "text_input": "STRING",
    "max_tokens": "INT32",
    "num_draft_tokens": "INT32",
    "stream": "BOOL",
    "top_k": "INT32",
    "top_p": "FP32",
    "temperature": "FP32",
    "stop_words": "STRING",
    "end_id": "INT32",
    "min_tokens": "INT32",
    "seed": "UINT64",
    "random_seed": "UINT64",
    "exclude_input_in_output": "BOOL",
    "return_perf_metrics": "BOOL",
}
_TEXT_OUTPUTS = {
    "text_output": "STRING",
    "total_draft_tokens": "INT32",
    "total_accepted_draft_tokens": "INT32",
    "draft_rounds": "INT32",
    "output_ids": "INT32",
    "round_draft_tokens": "INT32",
    "round_accepted_draft_tokens": "INT32",
}
_NUMPY = {
    "INT32": np.int32,
    "UINT32": np.uint32,
    "INT64": np.int64,
    "UINT64": np.uint64,
    "BOOL": np.bool_,
    "FP32": np.float32,
}


@dataclass
class Behaviour:
    """What the fake does; the defaults are an honest server."""

    gap: float = 4.0  # between the target's best two tokens, in logits
    second_best_at: tuple[int, ...] = ()  # speculation takes the target's second choice there, then goes on from it
    corrupt_from: int | None = None  # speculation returns nonsense from this position on
    drop_last_token: bool = False
    drop_token_at: int | None = None  # speculation loses the token of this position
    wrong_probability: float = 0.0  # speculation accepts a wrong token with this probability and goes on from it
    reuse_seed: bool = False  # every draw of an answer with speculation uses the same random number
    ignore_seed: bool = False  # every answer with speculation uses the same seed
    biased: bool = False  # speculation takes the best token too often
    leak: bool = False  # answers with speculation end in the prompt of the request before
    claims_drafts: bool = False  # counts drafts and calls no draft model
    draft_source: str = "model"
    unsteady_batch: bool = False  # the target engine answers otherwise while others are answered
    never_draft: bool = False
    not_ready: tuple[str, ...] = ()
    hang_on: str | None = None  # a model that never answers
    die_on: str | None = None  # a prompt text that takes the server down
    refuse: str | None = None  # a prompt text answered with an error
    no_logits: bool = False
    wrong_totals: bool = False
    include_prompt: bool = False  # the engine ignores exclude_input_in_output
    prefix_id: int | None = None  # the orchestrator tokenises differently: this id in front
    engine_dtypes: dict[str, str] = field(default_factory=dict)
    max_draft_len: str = "4"
    engine_drafts: bool = False  # the target drafts inside: no draft model, and no counts in answers


def rate(context: Sequence[int]) -> tuple[int, int]:
    """The toy target's best and second-best next token."""
    digest = zlib.crc32(np.asarray(context[-6:], dtype=np.int64).tobytes())
    best = END_ID if digest % 19 == 0 else 5 + digest % 250
    return best, 256 + digest % 40


def continue_greedily(context: Sequence[int], max_tokens: int, second_best_at: Sequence[int] = ()) -> list[int]:
    """Greedy answer of the toy target, its end token included."""
    output: list[int] = []
    while len(output) < max_tokens:
        best, second = rate([*context, *output])
        output.append(second if len(output) in second_best_at else best)
        if output[-1] == END_ID:
            break
    return output


def draw_tokens(context: Sequence[int], max_tokens: int, numbers: Iterator[float], best: float = 0.6) -> list[int]:
    """A sampled answer of the toy target: its best token with probability ``best``, its second one otherwise."""
    output: list[int] = []
    for _ in range(max_tokens):
        choice = rate([*context, *output])[next(numbers) >= best]
        output.append(choice)
        if choice == END_ID:
            break
    return output


def random_numbers(seed: int, reused: bool = False) -> Iterator[float]:
    draw = random.Random(seed)
    number = draw.random()
    while True:
        yield number
        if not reused:
            number = draw.random()


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Servicer and server in one; ``requests`` keeps what came in, by model."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self.behaviour = Behaviour()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._encode = encode
        self._released = threading.Event()
        self._draft_executions = 0
        self._last_text = ""
        self._engine_calls = 0
        self._wrong = random.Random(7)
        self._server = grpc.server(ThreadPoolExecutor(8))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._released.set()
        self._server.stop(None).wait()

    # -- protocol ----------------------------------------------------------------------------------------------------

    def ServerLive(self, request, context):  # noqa: N802 - names of the protocol
        return service_pb2.ServerLiveResponse(live=True)

    def ServerMetadata(self, request, context):  # noqa: N802
        return service_pb2.ServerMetadataResponse(name="fake-triton", version="0.0")

    def ModelReady(self, request, context):  # noqa: N802
        absent = ("tensorrt_llm_draft",) if self.behaviour.engine_drafts else ()
        return service_pb2.ModelReadyResponse(ready=request.name not in (*self.behaviour.not_ready, *absent))

    def ModelStatistics(self, request, context):  # noqa: N802
        response = service_pb2.ModelStatisticsResponse()
        row = response.model_stats.add(name=request.name)
        row.inference_stats.success.count = self._draft_executions
        return response

    def ModelConfig(self, request, context):  # noqa: N802
        config = model_config_pb2.ModelConfig(name=request.name)
        config.model_transaction_policy.decoupled = request.name == "ensemble"
        engine = request.name.startswith("tensorrt_llm") and not request.name.endswith("bls")
        inputs = _ENGINE_INPUTS | self.behaviour.engine_dtypes if engine else _TEXT_INPUTS
        for tensors, declared in (
            (config.input, inputs),
            (config.output, _ENGINE_OUTPUTS if engine else _TEXT_OUTPUTS),
        ):
            for name, dtype in declared.items():
                tensors.add(name=name, data_type=model_config_pb2.DataType.Value(f"TYPE_{dtype}"), dims=[-1])
        config.parameters["max_draft_len"].string_value = self.behaviour.max_draft_len
        config.parameters["draft_source"].string_value = self.behaviour.draft_source
        if self.behaviour.engine_drafts:
            config.parameters["engine_drafts"].string_value = "true"
        return service_pb2.ModelConfigResponse(config=config)

    def ModelInfer(self, request, context):  # noqa: N802
        inputs = self._receive(request)
        if request.model_name.endswith("bls"):
            text = inputs["text_input"][0].decode(errors="replace")
            if self.behaviour.refuse and self.behaviour.refuse in text:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this prompt is refused")
            return _respond(request.model_name, self._answer(text, inputs))
        self._draft_executions += request.model_name == "tensorrt_llm_draft"
        return _respond(request.model_name, self._call_engine(inputs))

    def ModelStreamInfer(self, request_iterator, context):  # noqa: N802
        for request in request_iterator:
            inputs = self._receive(request)
            prompt = inputs["text_input"][0].decode()
            if self.behaviour.refuse and self.behaviour.refuse in prompt:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this prompt is refused")
            answer = self._answer(prompt, inputs)
            for text in (b"", b"first", b"second"):
                response = _respond(request.model_name, answer | {"text_output": np.asarray([text], dtype=object)})
                yield service_pb2.ModelStreamInferResponse(infer_response=response)
            last = service_pb2.ModelInferResponse(model_name=request.model_name)
            last.parameters["triton_final_response"].bool_param = True
            yield service_pb2.ModelStreamInferResponse(infer_response=last)

    # -- behaviour ---------------------------------------------------------------------------------------------------

    def _receive(self, request) -> dict[str, Any]:
        inputs = {
            tensor.name: _decode(tensor, raw)
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        self.requests.append(
            (request.model_name, inputs | {"_dtypes": {tensor.name: tensor.datatype for tensor in request.inputs}})
        )
        if request.model_name == self.behaviour.hang_on:
            self._released.wait()
        text = inputs["text_input"][0].decode(errors="replace") if "text_input" in inputs else ""
        if self.behaviour.die_on and self.behaviour.die_on in text:
            self._server.stop(None)
            self._released.wait()
        return inputs

    def _answer(self, text: str, inputs: dict[str, Any]) -> dict[str, Any]:
        behaviour, max_tokens = self.behaviour, int(inputs["max_tokens"][0])
        length = int(inputs["num_draft_tokens"][0]) if "num_draft_tokens" in inputs else int(behaviour.max_draft_len)
        prompt = self._encode(text)
        if behaviour.prefix_id is not None:
            prompt = [behaviour.prefix_id, *prompt]
        drafted: list[int] = []
        sampled = "top_k" not in inputs or int(inputs["top_k"][0]) > 1
        seed = int(inputs["seed"][0])
        if sampled and length == 0:
            output = draw_tokens(prompt, max_tokens, random_numbers(seed))
        elif sampled:
            numbers = random_numbers(1 if behaviour.ignore_seed else seed, behaviour.reuse_seed)
            output = draw_tokens(prompt, max_tokens, numbers, 0.9 if behaviour.biased else 0.6)
            drafted = [length] * max(1, len(output) // 3)
            self._draft_executions += 1
        elif length == 0:
            output = continue_greedily(prompt, max_tokens)
        else:
            slips = [n for n in range(max_tokens) if self._wrong.random() < behaviour.wrong_probability]
            output = continue_greedily(prompt, max_tokens, (*behaviour.second_best_at, *slips))
            if behaviour.drop_token_at is not None:
                del output[behaviour.drop_token_at : behaviour.drop_token_at + 1]
            if behaviour.corrupt_from is not None:
                output[behaviour.corrupt_from :] = [299] * len(output[behaviour.corrupt_from :])
            if behaviour.drop_last_token:
                output = output[:-1]
            if not behaviour.never_draft:
                drafted = [length] * max(1, len(output) // 3)
                self._draft_executions += not behaviour.claims_drafts
        accepted = [2 if index % 2 else count for index, count in enumerate(drafted)]
        said = " ".join(map(str, output))
        if behaviour.leak and length:
            said += self._last_text
        self._last_text = text
        answer = {
            "text_output": np.asarray([said.encode()], dtype=object),
            "output_ids": np.asarray(output, dtype=np.int32),
        }
        if behaviour.engine_drafts:
            return answer
        return answer | {
            "round_draft_tokens": np.asarray(drafted, dtype=np.int32),
            "round_accepted_draft_tokens": np.asarray(accepted, dtype=np.int32),
            "total_draft_tokens": np.asarray([sum(drafted) + behaviour.wrong_totals], dtype=np.int32),
            "total_accepted_draft_tokens": np.asarray([sum(accepted)], dtype=np.int32),
            "draft_rounds": np.asarray([len(drafted)], dtype=np.int32),
        }

    def _call_engine(self, inputs: dict[str, Any]) -> dict[str, Any]:
        ids = [int(token) for token in inputs["input_ids"]]
        assert int(inputs["input_lengths"][0]) == len(ids)
        tokens = int(inputs["request_output_len"][0])
        output = continue_greedily(ids, tokens)
        if int(inputs["runtime_top_k"][0]) > 1:
            output = draw_tokens(ids, tokens, random_numbers(int(inputs["seed"][0])))
        self._engine_calls += 1
        if self.behaviour.unsteady_batch and self._engine_calls > 6 and tokens > 1:
            output = [299, *output[1:]]
        length = len(output) + (len(ids) if self.behaviour.include_prompt else 0)
        returned = [*(ids if self.behaviour.include_prompt else ()), *output, 0, 0]
        answer = {
            "output_ids": np.asarray([returned], dtype=np.int32),
            "sequence_length": np.asarray([length], dtype=np.int32),
        }
        if "return_generation_logits" in inputs and not self.behaviour.no_logits:
            best, second = rate(ids)
            logits = np.zeros((1, 1, VOCABULARY), dtype=np.float32)
            logits[0, 0, best], logits[0, 0, second] = 10.0, 10.0 - self.behaviour.gap
            answer["generation_logits"] = logits
        return answer


def _decode(tensor, raw: bytes) -> Any:
    if tensor.datatype == "BYTES":
        return [raw[4:]]
    assert tensor.shape[0] == 1, f"{tensor.name} lacks the batch dimension"
    return np.frombuffer(raw, dtype=_NUMPY[tensor.datatype])


def _respond(model_name: str, outputs: dict[str, Any]) -> service_pb2.ModelInferResponse:
    response = service_pb2.ModelInferResponse(model_name=model_name)
    types = {"int32": "INT32", "float32": "FP32", "object": "BYTES"}
    for name, array in outputs.items():
        response.outputs.add(name=name, datatype=types[str(array.dtype)], shape=[1, *array.shape])
        if array.dtype == object:
            raw = b"".join(len(item).to_bytes(4, "little") + item for item in array)
        else:
            raw = array.tobytes()
        response.raw_output_contents.append(raw)
    return response


def write_tokenizer(folder: Path, *, chat_template: str | None = None, **config: Any) -> Path:
    """A byte-level tokenizer folder: 256 bytes, then <s>, <end>."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": 0, "<s>": 1, "<end>": END_ID} | {char: 3 + index for index, char in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<pad>", "<s>", "<end>")])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "<end>"}} | config
    if chat_template is not None:
        settings["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture
def make_tokenizer() -> Callable[..., Path]:
    return write_tokenizer


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    template = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    return write_tokenizer(tmp_path / "tokenizer", chat_template=template)


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"id": "one", "text": "first"}, {"id": "two", "text": "둘 🙂"}, {"id": "three", "prompt": "third one"}]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def fake_triton(tokenizer_folder: Path) -> Iterator[FakeTriton]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    server = FakeTriton(lambda text: tokenizer.encode(text).ids)
    yield server
    server.stop()
