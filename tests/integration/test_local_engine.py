"""The local engine in the real Triton as a decoupled model, as NVIDIA's ensemble needs it: its tensors, streamed."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.dialect import load_dialect
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.pbtxt import parse_pbtxt, render_pbtxt
from trt_spec.deploy.repository import write_repository
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL

PROMPT = [5, 6, 7, 8]


@dataclass(frozen=True)
class Served:
    """A server of two decoupled engine models with the templates of TensorRT-LLM ``version``."""

    url: str
    version: str


@pytest.fixture(scope="module", params=["0.18.2", "1.2.1"])
def served(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    build_tiny_engine: Callable[..., Path],
    tiny_deployment: Callable[..., Deployment],
    serving: Callable[[Path], AbstractContextManager[RunningServer]],
) -> Iterator[Served]:
    draft = build_tiny_engine("pair-draft", max_draft_len=0, speculative_decoding_mode=1)
    deployment = tiny_deployment(request.param, draft=draft)
    repository = write_repository(deployment, tmp_path_factory.mktemp("local") / "repository")
    for model in (TARGET_MODEL, DRAFT_MODEL):
        file = repository / model / "config.pbtxt"
        file.write_text(render_pbtxt(replace(parse_pbtxt(file.read_text()), decoupled=True)))
    with serving(repository) as server:
        yield Served(server.grpc_url, request.param)


def stream(
    served: Served,
    new_tokens: int,
    model: str = DRAFT_MODEL,
    on_first: Callable[[], None] = lambda: None,
    request_id: str = "",
    **more: Any,
) -> list[dict[str, np.ndarray]]:
    """The outputs of every response, in order; raises what the server refuses with."""
    given = {
        "input_ids": np.array([PROMPT], np.int32),
        "input_lengths": np.array([[len(PROMPT)]], np.int32),
        "request_output_len": np.array([[new_tokens]], np.int32),
        **{name: value if isinstance(value, np.ndarray) else np.array([[value]]) for name, value in more.items()},
    }
    inputs = []
    for name, array in given.items():
        tensor = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    heard: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(served.url) as client:
        client.start_stream(lambda result, error: heard.put(error or result))
        client.async_stream_infer(model, inputs, request_id=request_id, enable_empty_final_response=True)
        responses = []
        while True:
            result = heard.get(timeout=60)
            if isinstance(result, Exception):
                raise result
            response = result.get_response()
            if response.outputs or not responses:
                responses.append({tensor.name: result.as_numpy(tensor.name) for tensor in response.outputs})
            if response.parameters["triton_final_response"].bool_param:
                return responses
            if len(responses) == 1:
                on_first()


SWITCHES = ("return_log_probs", "return_context_logits", "return_generation_logits")


def joined(responses: list[dict[str, np.ndarray]], name: str, axis: int) -> np.ndarray:
    return np.concatenate([response[name] for response in responses if name in response], axis=axis)


def test_a_stream_says_piece_by_piece_what_one_response_says_at_once(served: Served) -> None:
    asked = dict.fromkeys(SWITCHES, True)
    (whole,) = stream(served, 12, exclude_input_in_output=True, **asked)
    pieces = stream(served, 12, streaming=True, **asked)
    assert [piece["output_ids"].shape for piece in pieces] == [(1, 1, 1)] * 12
    assert joined(pieces, "output_ids", 2).tolist() == whole["output_ids"].tolist()
    np.testing.assert_allclose(joined(pieces, "output_log_probs", 2), whole["output_log_probs"], atol=1e-3)
    np.testing.assert_allclose(joined(pieces, "generation_logits", 2), whole["generation_logits"], atol=1e-3)
    np.testing.assert_allclose(joined(pieces, "context_logits", 1), whole["context_logits"], atol=1e-3)
    assert whole["context_logits"].shape == (1, len(PROMPT), 320)
    logits = whole["generation_logits"][0, 0].astype(np.float64)
    log_probs = logits.max(axis=1) - np.log(np.exp(logits).sum(axis=1))
    np.testing.assert_allclose(whole["output_log_probs"][0, 0], log_probs, atol=1e-4)
    np.testing.assert_allclose(whole["cum_log_probs"], [[log_probs.sum()]], atol=1e-3)
    np.testing.assert_allclose(pieces[-1]["cum_log_probs"], whole["cum_log_probs"], atol=1e-3)


def test_a_target_for_drafts_leaves_log_probs_unset(served: Served) -> None:
    (answer,) = stream(served, 3, TARGET_MODEL, return_log_probs=True)
    assert answer.keys() == {"output_ids", "sequence_length"}


def test_the_figures_are_those_of_the_version(served: Served) -> None:
    switch = "return_kv_cache_reuse_stats" if served.version == "0.18.2" else "return_perf_metrics"
    (answer,) = stream(served, 3, **{switch: True})
    declared = {tensor.name for tensor in load_dialect(served.version).models[TARGET_MODEL].outputs}
    figures = {name for name in declared if name.startswith(("kv_cache", "total_", "accept")) or name.endswith("_ns")}
    assert answer.keys() == {"output_ids", "sequence_length"} | figures
    assert len(figures) == (3 if served.version == "0.18.2" else 10)


def test_sequences_of_one_request_come_one_by_one(served: Served) -> None:
    sampled = {"runtime_top_p": np.array([[1.0]], np.float32), "temperature": np.array([[1.5]], np.float32)}
    seed = "random_seed" if served.version == "0.18.2" else "seed"
    count = np.array([[3]], np.int32)
    answers = stream(served, 8, num_return_sequences=count, **sampled, **{seed: np.array([[7]], np.uint64)})
    found = {int(answer["sequence_index"][0, 0]): answer["output_ids"].tolist() for answer in answers}
    alone = [stream(served, 8, **sampled, **{seed: np.array([[7 + i]], np.uint64)}) for i in range(3)]
    assert found == {i: answer["output_ids"].tolist() for i, (answer,) in enumerate(alone)}


def test_stop_ends_a_stream_of_the_same_id(served: Served) -> None:
    sequences = 64  # more than the engine holds at a time: some have not begun when the stop arrives
    pieces = stream(
        served,
        120,
        streaming=True,
        num_return_sequences=np.array([[sequences]], np.int32),
        request_id="me",
        on_first=lambda: stream(served, 1, stop=True, request_id="me"),
    )
    assert sequences < len(pieces) < sequences * 120
    assert {int(piece["sequence_index"][0, 0]) for piece in pieces} == set(range(sequences))
    assert [piece["output_ids"].size for piece in stream(served, 5, streaming=True, request_id="me")] == [1] * 5
