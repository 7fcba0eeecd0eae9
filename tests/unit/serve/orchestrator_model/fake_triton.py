"""A stand-in for what Triton's Python backend gives a model: tensors, responses, metrics and clients' requests."""

import threading
import time

import numpy as np

FINAL = 1


class MetricFamily:
    """Counts what is done to its metrics in ``values`` of the module it belongs to, by name and outcome."""

    COUNTER, GAUGE, HISTOGRAM = range(3)

    def __init__(self, name, description, kind):
        self.name, self.description = name, description

    def Metric(self, labels, buckets=None):  # noqa: N802 - Triton's name
        return Metric(self.values, (self.name, labels.get("outcome", "")))


class Metric:
    def __init__(self, values, key):
        self.values, self.key = values, key

    def increment(self, value):
        self.values[self.key] = self.values.get(self.key, 0) + value

    def set(self, value):
        self.values[self.key] = value

    def observe(self, value):
        self.values.setdefault(self.key, []).append(value)


class Tensor:
    def __init__(self, name, values):
        self._name, self._values = name, values

    def name(self):
        return self._name

    def as_numpy(self):
        return self._values


class TritonError:
    INTERNAL, INVALID_ARG, UNAVAILABLE, CANCELLED = range(4)

    def __init__(self, message, code=INTERNAL):
        self._message, self.code = message, code

    def message(self):
        return self._message


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.outputs = {tensor.name(): tensor for tensor in output_tensors}
        self._error = error

    def output_tensors(self):
        return list(self.outputs.values())

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error


class FakeRequest:
    """A client's request that collects its responses."""

    def __init__(self, text, **inputs):
        given = {"text_input": np.array([[text.encode()]], np.object_), "max_tokens": np.array([[6]], np.int32)}
        given |= {name: np.array([[value]]) for name, value in inputs.items()}
        self._inputs = [Tensor(name, values) for name, values in given.items()]
        self.responses = []
        self.done = threading.Event()
        self.asked_too_late = self.ended_twice = False
        self.cancelled, self.seen_cancelled = False, threading.Event()
        self.parameters_text = "{}"

    def inputs(self):
        return self._inputs

    def parameters(self):
        return self.parameters_text

    def is_cancelled(self):
        self.asked_too_late |= self.done.is_set()
        if self.cancelled:
            self.seen_cancelled.set()
        return self.cancelled

    def get_response_sender(self):
        return self

    def send(self, response=None, flags=0):
        if response is not None:
            self.responses.append(response)
        if flags == FINAL:
            self.ended_twice = self.done.is_set()
            self.done.set()

    def wait(self):
        assert self.done.wait(10), "no answer"
        return self.responses[-1]


def text_of(response):
    assert not response.has_error(), response.error().message()
    return response.outputs["text_output"].as_numpy()[0].decode()


def counts_of(response):
    names = ("total_draft_tokens", "total_accepted_draft_tokens", "draft_rounds")
    return tuple(int(response.outputs[name].as_numpy()[0, 0]) for name in names)


def fell_back(response):
    return bool(response.outputs["draft_fallback"].as_numpy()[0, 0])


LOAD = ("trtspec_running_requests", "trtspec_waiting_requests")


def metrics_of(triton, ended, *, others=0):
    """Values by metric name, and by name and outcome where there is one, once ``ended`` requests are counted and no
    more than ``others`` are there: an answer is counted before it is sent, and its place is free behind that."""
    values, deadline = triton.MetricFamily.values, time.monotonic() + 5

    def count(*names):
        return sum(value for key, value in values.copy().items() if key[0] in names)

    while count("trtspec_requests_total") < ended or count(*LOAD) > others:
        assert time.monotonic() < deadline, values
        time.sleep(0.001)
    return {key[0] if key[1:] == ("",) else key: value for key, value in values.items()}
