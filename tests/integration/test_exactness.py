"""Sampled answers through the real Triton: the target's distribution, the same for a seed, many rounds at a time.

One server: the orchestrator of the tiny pair, a second one that accepts by logits, and a third one whose engines only
wait for company.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.pbtxt import ModelConfig, parse_pbtxt, render_pbtxt
from trt_spec.deploy.repository import write_repository
from trt_spec.serve.contract import TARGET_MODEL, UNARY_MODEL
from trt_spec.serve.local_backend.batcher import Batcher, Job
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.sequence import GenerateRequest
from trt_spec.serve.tokens import TextTokenizer

WAITING_ENGINE = Path(__file__).parents[1] / "standins" / "waiting_engine" / "model.py"
LOGITS_MODEL, CROWDED_MODEL = "accepts_logits", "crowded"
MODELS = {"tokens": UNARY_MODEL, "logits": LOGITS_MODEL}
VOCABULARY = 320
CROWD = 64
TEXT = "how"  # where draft and target differ: min(p, q) sums up to 0.6

SAMPLES = 2_000
LEAST_CHANCE = 0.001
SETTING = {"temperature": 0.6, "top_k": 5, "top_p": 0.95}
DRAFT_TOKENS = 2


@dataclass(frozen=True)
class Served:
    """A running server and the folders of its engines by role."""

    url: str
    engines: dict[str, Path]

    def ask(self, model: str, requests: Sequence[dict[str, Any]]) -> list[dict[str, np.ndarray]]:
        """The outputs for each of ``requests``, all sent at once up to CROWD; raises what the server refuses with."""
        outputs: list[Any] = [None] * len(requests)
        slots = threading.Semaphore(CROWD)

        def keep(index: int, result: Any, error: Any) -> None:
            outputs[index] = error or {t.name: result.as_numpy(t.name) for t in result.get_response().outputs}
            slots.release()

        with grpcclient.InferenceServerClient(self.url) as client:
            for index, given in enumerate(requests):
                slots.acquire()
                client.async_infer(
                    model,
                    text_inputs(**given),
                    lambda result, error, index=index: keep(index, result, error),
                    client_timeout=120,
                )
            for _ in range(CROWD):
                slots.acquire()
        for output in outputs:
            if isinstance(output, Exception):
                raise output
        return outputs


def text_inputs(**given: Any) -> list[Any]:
    """Client tensors, each of shape [1, 1]."""
    dtypes = {bytes: np.object_, int: np.int32, float: np.float32, bool: np.bool_}
    inputs = []
    for name, value in {"text_input": TEXT.encode(), "return_perf_metrics": True, "end_id": -1, **given}.items():
        array = np.array([[value]], np.uint64 if name == "random_seed" else dtypes[type(value)])
        tensor = grpcclient.InferInput(name, [1, 1], np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


def add_model(repository: Path, like: str, model: str, **parameters: str) -> None:
    """A copy of an orchestrator under another name, with other parameters."""
    shutil.copytree(repository / like, repository / model)
    change_config(repository / model, lambda config: replace(config, parameters={**config.parameters, **parameters}))


def change_config(model: Path, change: Callable[[ModelConfig], ModelConfig]) -> None:
    file = model / "config.pbtxt"
    file.write_text(render_pbtxt(replace(change(parse_pbtxt(file.read_text())), name=model.name)))


def add_waiting_engine(repository: Path, model: str) -> None:
    """A stand-in with an engine's tensors that answers CROWD calls at a time."""
    (repository / model / "1").mkdir(parents=True)
    shutil.copyfile(WAITING_ENGINE, repository / model / "1" / "model.py")
    shutil.copyfile(repository / TARGET_MODEL / "config.pbtxt", repository / model / "config.pbtxt")
    parameters = {"calls": str(CROWD), "delay_s": "0"}
    change_config(
        repository / model,
        lambda config: replace(config, backend="python", max_batch_size=CROWD, parameters=parameters),
    )


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    build_tiny_engine: Callable[..., Path],
    tiny_deployment: Callable[..., Deployment],
    serving: Callable[[Path], AbstractContextManager[RunningServer]],
) -> Iterator[Served]:
    limits = {"max_batch_size": 16}
    engines = {
        "target": build_tiny_engine("pair-target", **limits),
        "draft": build_tiny_engine("pair-draft", max_draft_len=0, speculative_decoding_mode=1, **limits),
    }
    caches = {role: EngineDeployment(str(path), path, kv_cache_tokens=16 * 128) for role, path in engines.items()}
    deployment = replace(tiny_deployment("0.18.2", **engines, gathers_logits=True), **caches, **limits)
    repository = write_repository(deployment, tmp_path_factory.mktemp("exact") / "repository")
    add_model(repository, UNARY_MODEL, LOGITS_MODEL, accept="logits")
    crowd = {"tensorrt_llm_model_name": "crowded_target", "tensorrt_llm_draft_model_name": "crowded_draft"}
    add_model(repository, UNARY_MODEL, CROWDED_MODEL, max_inflight_requests=str(CROWD), **crowd)
    for name in crowd.values():
        add_waiting_engine(repository, name)
    with serving(repository) as server:
        yield Served(server.grpc_url, engines)


@dataclass(frozen=True)
class Expected:
    """Probabilities [VOCABULARY] of the target's first token, of its second behind each first one, and of the draft."""

    first: np.ndarray
    second: np.ndarray
    draft: np.ndarray


@pytest.fixture(scope="module")
def expected(served: Served, sampled_probabilities: Callable[..., np.ndarray]) -> Expected:
    """From the engines' logits alone, computed in this process."""
    prompt = TextTokenizer(served.engines["target"]).encode(TEXT)
    batchers = {role: Batcher(Engine(folder)) for role, folder in served.engines.items()}

    def probabilities(role: str, said: list[int]) -> np.ndarray:
        found: list[Any] = []
        batchers[role].submit(Job(GenerateRequest(said, 1, return_logits=True), found.append))
        while not batchers[role].is_idle:
            batchers[role].step()
        logits = found[0].logits[0]
        best = np.sort(logits)[::-1]
        assert best[SETTING["top_k"] - 1] - best[SETTING["top_k"]] > 1e-3  # noise does not change who is in the top k
        return sampled_probabilities(logits, said, **SETTING)

    first, draft = probabilities("target", prompt), probabilities("draft", prompt)
    second = np.zeros((VOCABULARY, VOCABULARY))
    for token in np.flatnonzero(first):
        second[token] = probabilities("target", [*prompt, int(token)])
    return Expected(first, second, draft)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_answers_have_the_targets_distribution(
    served: Served, expected: Expected, chance_of_fit: Callable[..., float], model: str
) -> None:
    asked = {"max_tokens": DRAFT_TOKENS + 1, "num_draft_tokens": DRAFT_TOKENS, **SETTING}
    answers = served.ask(model, [{**asked, "random_seed": seed} for seed in range(SAMPLES)])
    pairs = np.zeros((VOCABULARY, VOCABULARY), int)
    for answer in answers:
        first, second = answer["output_ids"][0, :2]
        pairs[first, second] += 1
    assert chance_of_fit(pairs.sum(axis=1), expected.first) > LEAST_CHANCE
    assert chance_of_fit(pairs, expected.first[:, None] * expected.second) > LEAST_CHANCE
    # Which rule was at work shows in how often the first draft is kept.
    p, q = expected.first, expected.draft
    kept = (p * q).sum() if model == UNARY_MODEL else np.minimum(p, q).sum()
    found = np.mean([answer["round_accepted_draft_tokens"][0, 0] > 0 for answer in answers])
    assert abs(found - kept) < 5 * np.sqrt(kept * (1 - kept) / SAMPLES)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_seed_gives_the_same_answer_alone_and_among_others(served: Served, model: str) -> None:
    asked = {"max_tokens": 24, "num_draft_tokens": 4, "temperature": 1.2, "top_p": 0.95}
    seeds = [3, 2**40]
    alone = [served.ask(model, [{**asked, "random_seed": seed}])[0]["output_ids"].tolist() for seed in seeds]
    others = [{**asked, "random_seed": 100 + i, "text_input": b"abc"[: 1 + i % 3]} for i in range(8)]
    for seed, expected in zip(seeds, alone, strict=True):
        *_, among = served.ask(model, [*others, {**asked, "random_seed": seed}])
        assert among["output_ids"].tolist() == expected
    assert alone[0] != alone[1]


def test_sixty_four_rounds_are_under_way_at_the_same_time(served: Served) -> None:
    """Both engines answer only when CROWD calls wait together."""
    asked = {"max_tokens": 3, "num_draft_tokens": 2}
    answers = served.ask(CROWDED_MODEL, [asked] * CROWD)
    assert all(answer["output_ids"].tolist() == [[7, 7, 7]] for answer in answers)
    assert all(answer["total_accepted_draft_tokens"] == 2 for answer in answers)
