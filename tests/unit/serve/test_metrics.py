"""Metrics of the orchestrator on Triton versions that lack some of them, and while they fail."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from trt_spec.serve.metrics import METRICS, OrchestratorMetrics

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


class Metric:
    def __init__(self, log, name, **given):
        self._log, self._name, self._given = log, name, given

    def increment(self, value):
        self._log.append((self._name, value))

    set = observe = increment


def make_triton(log, *, kinds=("COUNTER", "GAUGE", "HISTOGRAM"), metric=Metric):
    """A stand-in for the utility module that knows ``kinds`` of metrics."""

    class Family:
        def __init__(self, name, description, kind):
            self.name = name

        def Metric(self, **given):  # noqa: N802 - Triton's name
            log.append(("new", self.name, given))
            return metric(log, self.name, **given)

    for kind in kinds:
        setattr(Family, kind, kind)
    warnings = []
    module = SimpleNamespace(MetricFamily=Family, Logger=SimpleNamespace(log_warn=warnings.append), warnings=warnings)
    if not kinds:
        del module.MetricFamily
    return module


def make_metrics(triton, max_draft_len=4):
    return OrchestratorMetrics(triton, model="ensemble", version="1", max_draft_len=max_draft_len)


def count_a_request(metrics):
    figures = metrics.follow()
    figures.counts.drafted += [4, 4]
    figures.counts.accepted += [4, 1]
    figures.counts.sources += ["model", "ngram"]
    figures.tick(output_tokens=7)
    figures.show_text()
    figures.show_text()
    figures.end("answered")
    metrics.count_draft_failure()
    metrics.set_load(running=1, waiting=2)


def test_without_histograms_the_counters_remain():
    log = []
    triton = make_triton(log, kinds=("COUNTER", "GAUGE"))
    count_a_request(make_metrics(triton))
    assert ("trtspec_accepted_draft_tokens_total", 5) in log
    counted = {entry[0] for entry in log if entry[0] != "new"}
    assert counted == {info.name for info in METRICS if info.kind != "HISTOGRAM"}
    assert len(triton.warnings) == sum(info.kind == "HISTOGRAM" for info in METRICS)


def test_without_any_metrics_requests_go_on():
    triton = make_triton([], kinds=())
    count_a_request(make_metrics(triton))
    assert len(triton.warnings) == len(METRICS)


def test_a_metric_that_fails_is_given_up_and_told_once():
    class Failing(Metric):
        def increment(self, value):
            raise RuntimeError("the parent process is gone")

        set = observe = increment

    triton = make_triton([], metric=Failing)
    metrics = make_metrics(triton)
    for _ in range(3):
        count_a_request(metrics)
    assert len(triton.warnings) == len(METRICS)


def test_nothing_is_counted_behind_the_end():
    log = []
    metrics = make_metrics(make_triton(log))
    metrics.close()
    log.clear()
    count_a_request(metrics)
    assert log == []


@pytest.mark.parametrize(
    ("max_draft_len", "bounds"),
    [
        (0, [1]),
        (4, [1, 2, 3, 4, 5]),
        (10, [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]),
        (64, [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 25, 33, 65]),
    ],
)
def test_buckets_end_at_the_longest_round(max_draft_len, bounds):
    log = []
    make_metrics(make_triton(log), max_draft_len)
    (created,) = [entry[2] for entry in log if entry[1] == "trtspec_acceptance_length"]
    assert created["buckets"] == bounds


def test_a_request_is_counted_once_and_timed_from_its_arrival():
    log = []
    metrics = make_metrics(make_triton(log))
    log.clear()
    count_a_request(metrics)
    named = [name for name, _ in log]
    assert [named.count(info.name) for info in METRICS] == [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 2, 1, 1, 1]
    assert 0 <= dict(log)["trtspec_first_text_seconds"] <= dict(log)["trtspec_request_seconds"] < 5


def test_what_ngram_lookup_drafted_is_part_of_all_that_was_drafted():
    log = []
    metrics = make_metrics(make_triton(log))
    log.clear()
    count_a_request(metrics)
    assert ("trtspec_draft_tokens_total", 8) in log
    assert ("trtspec_ngram_draft_tokens_total", 4) in log
    assert ("trtspec_accepted_ngram_draft_tokens_total", 1) in log
    assert [value for name, value in log if name == "trtspec_draft_length"] == [4, 4]


def test_only_answers_are_timed():
    log = []
    metrics = make_metrics(make_triton(log))
    metrics.follow().end("cancelled")
    assert ("trtspec_requests_total", 1) in log
    assert not any(name == "trtspec_request_seconds" for name, *_ in log if name != "new")


def test_every_outcome_has_a_series_from_the_start():
    log = []
    make_metrics(make_triton(log))
    labels = [entry[2]["labels"] for entry in log if entry[1] == "trtspec_requests_total"]
    assert {"queue_full", "answered", "engine_failed"} < {label["outcome"] for label in labels}
    assert all((label["model"], label["version"]) == ("ensemble", "1") for label in labels)


def test_the_reference_page_lists_exactly_these_metrics():
    lines = [line for line in REFERENCE.read_text(encoding="utf-8").splitlines() if line.startswith("| `trtspec_")]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    listed = [(name, kind, what) for name, kind, _labels, what in rows]
    assert listed == [(info.name, info.kind.lower(), info.what) for info in METRICS]


def test_threads_change_metrics_one_at_a_time():
    inside, most = [], []

    class Slow(Metric):
        def increment(self, value):
            inside.append(None)
            time.sleep(0.0002)
            most.append(len(inside))
            inside.pop()

        set = observe = increment

    metrics = make_metrics(make_triton([], metric=Slow))
    with ThreadPoolExecutor(8) as pool:
        for counted in [pool.submit(count_a_request, metrics) for _ in range(16)]:
            counted.result()
    assert set(most) == {1}
