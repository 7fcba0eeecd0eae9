"""The metrics port of a real server: the orchestrator's counters equal what the answers said."""

import json
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL
from trt_spec.serve.metrics import METRICS

RECORDED = Path(__file__).parents[1] / "fixtures" / "metrics" / "triton.json"
MAX_BATCH_SIZE = 4


def read_metrics(server):
    """Samples of the metrics port as {(name, frozenset of label pairs): value}."""
    with urllib.request.urlopen(f"http://{server.host}:{server.metrics_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = {}
    for line in lines:
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            pairs = [pair.partition("=") for pair in labels.rstrip("}").split(",") if pair]
            samples[name, frozenset((key, text.strip('"')) for key, _, text in pairs)] = float(value)
    return samples


def value_of(samples, name, model, **labels):
    return samples[name, frozenset({"model": model, "version": "1", **labels}.items())]


def increase(name, before, after, model):
    return value_of(after, name, model) - value_of(before, name, model)


def generate(server, model, **inputs):
    body = {"text_input": "hello", "max_tokens": 24, "return_perf_metrics": True, **inputs}
    path = f"{server.http_url}/v2/models/{model}/generate"
    with urllib.request.urlopen(path, data=json.dumps(body).encode(), timeout=60) as answer:
        return json.load(answer)


def wait_for(server, answered, model):
    """The samples once ``answered`` requests are counted: the count follows the answer by a moment."""
    deadline = time.monotonic() + 10
    while True:
        samples = read_metrics(server)
        if value_of(samples, "trtspec_requests_total", model, outcome="answered") >= answered:
            return samples
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_counters_equal_the_sums_of_the_response_tensors(served):
    prompts = {UNARY_MODEL: ("hello", "1 + 1 =", "x" * 40), STREAMING_MODEL: ("안녕하세요", "def add(a, b):")}
    for model, texts in prompts.items():
        before = read_metrics(served)
        answers = [generate(served, model, text_input=text) for text in texts]
        answers.append(generate(served, model, num_draft_tokens=0))
        for answer in answers:
            assert np.sum(answer["round_draft_tokens"]) == answer["total_draft_tokens"]
            assert np.sum(answer["round_accepted_draft_tokens"]) == answer["total_accepted_draft_tokens"]
        asked = len(answers) + value_of(before, "trtspec_requests_total", model, outcome="answered")
        after = wait_for(served, asked, model)
        for metric, tensor in (
            ("trtspec_draft_tokens_total", "total_draft_tokens"),
            ("trtspec_accepted_draft_tokens_total", "total_accepted_draft_tokens"),
            ("trtspec_draft_rounds_total", "draft_rounds"),
            ("trtspec_acceptance_length_count", "draft_rounds"),
        ):
            assert increase(metric, before, after, model) == sum(answer[tensor] for answer in answers) > 0, metric
        assert increase("trtspec_request_seconds_count", before, after, model) == len(answers)
        tokens = sum(len(answer["output_ids"]) for answer in answers)
        assert increase("trtspec_output_tokens_total", before, after, model) == tokens
        lengths = sum(answer["total_accepted_draft_tokens"] + answer["draft_rounds"] for answer in answers)
        assert increase("trtspec_acceptance_length_sum", before, after, model) == lengths
        assert value_of(after, "trtspec_acceptance_length_bucket", model, le="5") == value_of(
            after, "trtspec_acceptance_length_count", model
        )


def test_every_metric_is_there_for_both_models(served):
    samples = read_metrics(served)
    for model in (UNARY_MODEL, STREAMING_MODEL):
        names = {name for name, labels in samples if ("model", model) in labels and name.startswith("trtspec_")}
        for info in METRICS:
            assert info.name in names or (info.kind == "HISTOGRAM" and f"{info.name}_bucket" in names)


def test_tritons_metrics_have_the_recorded_names_and_labels(served):
    """Those of GPUs and of the C++ backend are not to be had on a CPU."""
    exported = {}
    for name, labels in read_metrics(served):
        exported.setdefault(name, set()).update(key for key, _ in labels)
    recorded = json.loads(RECORDED.read_text())["server"]
    on_cpu = {name: set(labels) for name, labels in recorded.items() if "gpu_uuid" not in labels}
    assert {name: exported.get(name) for name in on_cpu} == on_cpu


def test_the_queue_is_seen_by_our_gauge_and_not_by_tritons(served):
    """Triton hands every request over at once, so its own count of pending requests says nothing: scale by ours."""
    done, waiting, pending = threading.Event(), [0.0], [0.0]

    def watch():
        while not done.is_set():
            samples = read_metrics(served)
            waiting.append(value_of(samples, "trtspec_waiting_requests", UNARY_MODEL))
            pending.append(value_of(samples, "nv_inference_pending_request_count", UNARY_MODEL) if waiting[-1] else 0)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda _: generate(served, UNARY_MODEL, max_tokens=60), range(48)))
    done.set()
    watcher.join()
    assert max(waiting) > MAX_BATCH_SIZE
    assert sum(pending) < sum(waiting) / 20  # one on its way to the orchestrator is caught at times
    assert value_of(read_metrics(served), "trtspec_waiting_requests", UNARY_MODEL) == 0
