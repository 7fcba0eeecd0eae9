"""`trtspec prove` over gRPC, against the toy engine behind a server of this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from trt_spec.cli.main import main
from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed
from trt_spec.plan.engine_record import ONNX_VERSION_PREFIX
from trt_spec.verify.conformance.endpoint import resolve_limits
from trt_spec.verify.conformance.observation import NotApplicable
from trt_spec.verify.conformance.triton_endpoint import TritonEndpoint
from trt_spec.verify.tensors import ModelInterface

_NUMPY = {"INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}
_ROWS = ("draft_logits", "stop_words_list")  # inputs of two dimensions


class ToyServer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A Triton that serves the toy as tensorrt_llm, and nothing else unless ``more`` names it."""

    def __init__(self, toy: Any) -> None:
        self.toy = toy
        self.parameters: dict[str, str] = {}
        self.more: dict[str, dict[str, str]] = {}
        self.decoupled = False
        self.unknown = grpc.StatusCode.NOT_FOUND
        self.fails: grpc.StatusCode | None = None
        self.retyped: dict[str, str] = {}
        self._server = grpc.server(ThreadPoolExecutor(2))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def ServerMetadata(self, request, context):  # noqa: N802 - names of the protocol
        return service_pb2.ServerMetadataResponse(name="triton", version="0")

    def ModelConfig(self, request, context):  # noqa: N802
        config = model_config_pb2.ModelConfig(name=request.name)
        if request.name in self.more:
            for key, value in self.more[request.name].items():
                config.parameters[key].string_value = value
        elif request.name == "tensorrt_llm":
            interface = self.toy.interface(request.name)
            for name, dtype in (interface.inputs | self.retyped).items():
                kind = "TYPE_" + dtype.replace("BYTES", "STRING")
                config.input.add(name=name, data_type=model_config_pb2.DataType.Value(kind), dims=[-1])
            for name in interface.outputs:
                config.output.add(name=name, dims=[-1])
            for key, value in self.parameters.items():
                config.parameters[key].string_value = value
            config.model_transaction_policy.decoupled = self.decoupled
        else:
            context.abort(self.unknown, "unknown model")
        return service_pb2.ModelConfigResponse(config=config)

    def ModelInfer(self, request, context):  # noqa: N802
        if self.decoupled:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "decoupled models are streamed")
        if self.fails is not None:
            context.abort(self.fails, "something happened.")
        answer = self.toy.call("tensorrt_llm", _decode(request))
        if answer.refusal is not None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, answer.refusal)
        return _respond(answer)

    def ModelStreamInfer(self, request_iterator, context):  # noqa: N802
        for request in request_iterator:
            answer = self.toy.call("tensorrt_llm", _decode(request))
            if answer.refusal is not None:
                last = service_pb2.ModelStreamInferResponse(error_message=answer.refusal)
                last.infer_response.parameters["triton_final_response"].bool_param = True
                yield last
                continue
            yield service_pb2.ModelStreamInferResponse(infer_response=_respond(answer))
            last = service_pb2.ModelInferResponse(model_name=request.model_name)
            last.parameters["triton_final_response"].bool_param = True
            yield service_pb2.ModelStreamInferResponse(infer_response=last)


def _decode(request) -> dict[str, Any]:
    values = {}
    for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        array = np.frombuffer(raw, _NUMPY[tensor.datatype]).reshape(tensor.shape)[0]
        is_list = tensor.name in _ROWS or tensor.name.endswith("_ids")
        values[tensor.name] = array.tolist() if is_list else array.item()
    return values


def _respond(answer) -> service_pb2.ModelInferResponse:
    response = service_pb2.ModelInferResponse(model_name="tensorrt_llm")
    types = {"int32": "INT32", "float32": "FP32"}
    for name, array in answer.outputs.items():
        response.outputs.add(name=name, datatype=types[str(array.dtype)], shape=array.shape)
        response.raw_output_contents.append(array.tobytes())
    return response


@pytest.fixture
def serve_toy(make_toy) -> Iterator[Any]:
    """serve_toy(*faults) -> a running ToyServer."""
    servers = []

    def serve(*faults: str, **options: Any) -> ToyServer:
        servers.append(ToyServer(make_toy(*faults, **options)))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


def prove(*arguments: str):
    return CliRunner().invoke(main, ["prove", *arguments])


@pytest.mark.parametrize("decoupled", [False, True])
def test_any_triton_with_nvidias_tensors_is_proved(serve_toy, decoupled):
    server = serve_toy()
    server.decoupled = decoupled
    result = prove(server.url, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    not_held = {proof["id"] for proof in record["proofs"] if proof["verdict"] != "held"}
    assert not_held == {"draft-limit", "sequence-limit", "whole-prefix"}  # nobody tells the limits
    assert record["engines"]["tensorrt_llm"]["stands_for"] == "engine of unknown make"
    assert record["requests"] == len(server.toy.calls)
    assert record["verified"]["rows"] == {"tensorrt_llm": []}
    assert record["verified"]["on"].startswith("engine of unknown make version unknown, triton 0, ")


def test_a_rule_that_differs_is_exit_code_4_and_in_the_record(serve_toy, tmp_path):
    server = serve_toy("end-id")
    result = prove(server.url, "--report", str(tmp_path / "new" / "folder"))
    assert result.exit_code == 4
    assert "1 of 20 rules of the conformance table do not hold" in result.stderr
    assert "end-id (tensorrt_llm)" in result.stderr
    record = json.loads((tmp_path / "new" / "folder" / "conformance.json").read_text())
    (differing,) = (proof for proof in record["proofs"] if proof["verdict"] == "differs")
    assert differing["id"] == "end-id"
    assert differing["source"]
    assert "16 held, 1 differs, 3 not applicable" in result.stdout


@pytest.mark.parametrize(
    ("version", "verifies"), [("1.2.1", True), (f"{ONNX_VERSION_PREFIX}1.19.0", False), ("", False)]
)
def test_only_a_tensorrt_llm_engine_verifies_rules(serve_toy, tmp_path, version, verifies):
    server = serve_toy("end-id")
    config = {"version": version, "build_config": {"max_draft_len": 5, "max_seq_len": 160, "max_num_tokens": 152}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    server.parameters = {"gpt_model_path": str(tmp_path)}
    record = json.loads(prove(server.url, "--json").stdout)
    held = [proof["id"] for proof in record["proofs"] if proof["verdict"] == "held"]
    assert len(held) == 19
    assert record["verified"]["rows"] == {"tensorrt_llm": held if verifies else []}


@pytest.mark.parametrize("status", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT])
def test_a_model_that_the_server_has_not_is_left_out(serve_toy, status):
    server = serve_toy()
    server.unknown = status
    with TritonEndpoint(server.url, deadline_s=20) as endpoint:
        assert endpoint.find("tensorrt_llm_draft") is None


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
def test_a_busy_server_does_not_hide_the_draft(serve_toy, status):
    server = serve_toy()
    server.unknown = status
    with (
        TritonEndpoint(server.url, deadline_s=20) as endpoint,
        pytest.raises(StepFailed, match="does not serve tensorrt_llm_draft"),
    ):
        endpoint.find("tensorrt_llm_draft")


def test_the_orchestrators_parameters_tell_the_limits(serve_toy, toy_limits):
    server = serve_toy()
    server.more["tensorrt_llm_bls"] = {
        "max_draft_len": str(toy_limits.max_draft_len),
        "max_seq_len": str(toy_limits.max_seq_len),
    }
    record = json.loads(prove(server.url, "--json").stdout)
    verdicts = {proof["id"]: proof["verdict"] for proof in record["proofs"]}
    assert (verdicts["draft-limit"], verdicts["sequence-limit"]) == ("held", "held")
    assert record["engines"]["tensorrt_llm"]["source"] == "the parameters of tensorrt_llm_bls"


def test_the_engine_folder_tells_more(tmp_path):
    build = {"max_draft_len": 7, "max_seq_len": 100, "max_num_tokens": 64}
    (tmp_path / "config.json").write_text(json.dumps({"version": "1.2.1", "build_config": build}))
    parameters = {"gpt_model_path": str(tmp_path), "max_tokens_in_paged_kv_cache": "512"}
    engine = ModelInterface("tensorrt_llm", {}, frozenset(), parameters)
    limits = resolve_limits(engine, None)
    assert (limits.max_draft_len, limits.max_seq_len, limits.max_num_tokens, limits.max_kv_tokens) == (7, 100, 64, 512)
    assert limits.version == "1.2.1"
    told = replace(engine, parameters={**parameters, "max_num_tokens": "40"})
    assert resolve_limits(told, None).max_num_tokens == 40
    (tmp_path / "config.json").write_text("{")
    assert resolve_limits(engine, None).max_draft_len is None


def test_a_server_that_fails_is_no_refusal(serve_toy):
    server = serve_toy()
    with TritonEndpoint(server.url, deadline_s=20) as endpoint:
        asked = {"input_ids": [5, 6], "input_lengths": 2, "request_output_len": 1, "exclude_input_in_output": True}
        assert len(endpoint.call("tensorrt_llm", {**asked, "streaming": False}).ids) == 1
        server.fails = grpc.StatusCode.INTERNAL
        assert endpoint.call("tensorrt_llm", asked).refusal == "something happened"
        server.fails = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(StepFailed, match=r"does not answer any more \(something happened\)"):
            endpoint.call("tensorrt_llm", asked)


def test_logits_of_a_type_that_cannot_be_sent_make_their_rules_not_applicable(serve_toy):
    server = serve_toy()
    server.retyped = {"draft_logits": "BF16"}
    with TritonEndpoint(server.url, deadline_s=20) as endpoint, pytest.raises(NotApplicable, match="BF16"):
        endpoint.call("tensorrt_llm", {"draft_logits": ()})


def test_a_model_that_takes_text_is_refused(serve_toy):
    server = serve_toy()
    server.more["tensorrt_llm"] = {}
    with TritonEndpoint(server.url, deadline_s=20) as endpoint, pytest.raises(SpecError, match="input_ids"):
        endpoint.check_engine()


def test_no_server_is_a_missing_environment(free_port):
    with (
        TritonEndpoint(f"127.0.0.1:{free_port}", deadline_s=5) as endpoint,
        pytest.raises(EnvironmentMissing, match="No Triton server answers"),
    ):
        endpoint.check_engine()


@pytest.mark.parametrize("target", ["missing.yaml", "no-port", "http://127.0.0.1:8000"])
def test_what_is_neither_spec_nor_address_is_bad_usage(target):
    assert prove(target).exit_code == 2


@pytest.fixture
def free_port() -> int:
    from trt_spec.deploy.host.ports import find_free_ports

    return find_free_ports()["grpc_port"]


def test_a_spec_is_proved_on_its_running_server(serve_toy, write_spec, tmp_path):
    server = serve_toy()
    root = tmp_path / "work"
    root.mkdir()
    host, port = server.url.split(":")
    (root / "server.json").write_text(json.dumps({"host": host, "grpc_port": int(port)}))
    result = prove(str(write_spec()), "-o", str(root), "--json")
    assert result.exit_code == 0, result.output
    record = json.loads((root / "reports" / "conformance.json").read_text())
    assert record == json.loads(result.stdout)
    assert record["deployment"]["backend"] == "onnx"
    assert record["url"] == server.url
