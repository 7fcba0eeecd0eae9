"""The orchestrator's model on a fake Python backend: what a real server cannot be made to do on demand."""

import json
import shutil
import sys
import threading
import types
from contextlib import contextmanager

import numpy as np
import pytest

from trt_spec.serve.orchestrator_model import TritonPythonModel

from .fake_triton import FINAL, InferenceResponse, MetricFamily, Tensor, TritonError


@pytest.fixture
def triton(monkeypatch):
    """A stand-in for triton_python_backend_utils; ``engine(model, ids, n, drafts)`` answers engine calls."""
    module = types.ModuleType("triton_python_backend_utils")
    module.Tensor, module.TritonError, module.InferenceResponse = Tensor, TritonError, InferenceResponse
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    module.warnings, module.calls = [], []
    module.more_outputs = lambda inputs, new: {}
    module.lines, module.sent, module.shared = [], [], []
    in_use = []

    @contextmanager
    def watch_sharing(tensors):
        """Notes tensors that another call is sending as well: Triton's are not made for that."""
        module.shared.extend(tensor.name() for tensor in tensors if any(tensor is other for other in in_use))
        in_use.extend(tensors)
        yield
        for tensor in tensors:
            in_use.remove(tensor)

    module.watch_sharing = watch_sharing
    module.Logger = types.SimpleNamespace(
        log_warn=module.warnings.append, log_error=module.warnings.append, log_info=module.lines.append
    )

    class InferenceRequest:
        def __init__(self, model_name, requested_output_names, inputs):
            self.model, self.inputs = model_name, {tensor.name(): tensor.as_numpy() for tensor in inputs}
            self.tensors = inputs

        def exec(self):
            module.sent.append(self.tensors)
            with module.watch_sharing(self.tensors):
                return self.answer()

        def answer(self):
            ids = self.inputs["input_ids"][0].tolist()
            drafts = self.inputs.get("draft_input_ids", np.empty((1, 0), np.int32))[0].tolist()
            new = module.engine(self.model, ids, int(self.inputs["request_output_len"][0, 0]), drafts)
            if isinstance(new, str):
                return InferenceResponse(error=TritonError(new))
            module.calls.append((self.model, self.inputs))
            more = module.more_outputs(self.inputs, new)
            return InferenceResponse(
                [
                    Tensor("output_ids", np.array([[new]])),
                    Tensor("sequence_length", np.array([[len(new)]])),
                    *(Tensor(name, values) for name, values in more.items()),
                ]
            )

    module.InferenceRequest = InferenceRequest
    module.MetricFamily = type("MetricFamily", (MetricFamily,), {"values": {}})
    module.engine = lambda model, ids, n, drafts: [len(ids) % 300 + i for i in range(n)]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", module)
    return module


@pytest.fixture
def never(monkeypatch):
    """An engine that answers when the test is over; calls that may never be answered are looked at often."""
    monkeypatch.setattr("trt_spec.serve.request_threads.LOOK_S", 0.01)
    gate = threading.Event()
    yield lambda *call: gate.wait() and []
    gate.set()


@pytest.fixture
def start(triton, tiny, tmp_path):
    """start(**parameters) -> an initialised model, finalized at the end of the test."""
    shutil.copytree(tiny / "tokenizer", tmp_path / "1" / "tokenizer")
    started = []

    def start(decoupled=False, **parameters):
        given = {
            "tensorrt_llm_model_name": "target",
            "tensorrt_llm_draft_model_name": "draft",
            "tokenizer_dir": "tokenizer",
            "engine_seed_name": "seed",
            "max_input_len": 64,
            "max_output_len": 60,
            "max_seq_len": 128,
            "max_draft_len": 2,
            "max_inflight_requests": 4,
            "max_queue_requests": 4,
            "vocab_size": 320,
            "draft_vocab_size": 312,
            "log_probs": "none",
            **parameters,
        }
        config = {
            "parameters": {name: {"string_value": str(value)} for name, value in given.items()},
            "input": [],
            "model_transaction_policy": {"decoupled": decoupled},
        }
        model = TritonPythonModel()
        args = {"model_name": "ensemble", "model_version": "1", "model_repository": str(tmp_path)}
        model.initialize({**args, "model_config": json.dumps(config)})
        started.append(model)
        return model

    yield start
    for model in started:
        model.finalize()
