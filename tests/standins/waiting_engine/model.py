"""Stands in for an engine that is busy: it answers its calls together, once as many wait as the configuration says.

Parameters: ``calls`` that must be waiting at the same time, and ``delay_s`` for which each of them waits at least.
Calls that find too little company within ``PATIENCE_S`` are answered with an error that says how many there were. The
tokens are the drafts and one more, or as many as were asked for.
"""

import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

PATIENCE_S = 30.0
TOKEN = 7


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self._calls = int(parameters["calls"]["string_value"])
        self._delay_s = float(parameters["delay_s"]["string_value"])
        self._changed = threading.Condition()
        self._waiting = []
        threading.Thread(target=self._answer_together, daemon=True).start()

    def execute(self, requests):
        with self._changed:
            self._waiting += [(request, request.get_response_sender(), time.monotonic()) for request in requests]
            self._changed.notify()

    def _answer_together(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                enough = self._changed.wait_for(lambda: len(self._waiting) >= self._calls, PATIENCE_S)
                calls, self._waiting = self._waiting, []
            for request, sender, arrived in calls:
                time.sleep(max(0.0, arrived + self._delay_s - time.monotonic()))
                response = _tokens(request) if enough else _failure(f"{len(calls)} calls came together")
                sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _tokens(request):
    drafts = pb_utils.get_input_tensor_by_name(request, "draft_input_ids")
    asked = pb_utils.get_input_tensor_by_name(request, "request_output_len").as_numpy().item()
    ids = [TOKEN] * asked if drafts is None else [*drafts.as_numpy().reshape(-1), TOKEN]
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("output_ids", np.array([[ids]], np.int32)),
            pb_utils.Tensor("sequence_length", np.array([[len(ids)]], np.int32)),
        ]
    )


def _failure(message):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
