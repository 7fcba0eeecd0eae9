"""Stands in for NVIDIA's LLM API model: the same entry points and tensors, and no language model behind them.

It reads model.yaml from the folder that Triton names, answers through response senders, and streams texts that grow.
"""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
import yaml
from helpers import answer_words


class TritonPythonModel:
    def initialize(self, args):
        settings = yaml.safe_load(Path(pb_utils.get_model_dir(), "model.yaml").read_text(encoding="utf-8"))
        self.decoupled = settings.pop("triton_config")["decoupled"]
        self.settings = settings
        self.finalized = False

    def execute(self, requests):
        for request in requests:
            prompt = self._input(request, "text_input").decode()
            words = answer_words(prompt, int(self._input(request, "sampling_param_max_tokens")))
            sender = request.get_response_sender()
            if self._input(request, "streaming"):
                for number in range(1, len(words)):
                    sender.send(self._answer("".join(words[:number])))
            sender.send(self._answer("".join(words)), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        self.finalized = True

    @staticmethod
    def _input(request, name):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return None if tensor is None else tensor.as_numpy().reshape(-1)[0]

    def _answer(self, text):
        kind = self.settings.get("speculative_config", {}).get("decoding_type", "none")
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("text_output", np.asarray([text.encode()], dtype=object)),
                pb_utils.Tensor("finish_reason", np.asarray([kind.encode()], dtype=object)),
            ]
        )
