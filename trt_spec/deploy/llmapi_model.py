"""The model.py of backend llmapi: hands every call of Triton to NVIDIA's LLM API model, which the container holds.

NVIDIA's containers of TensorRT-LLM 1.0 to 1.2.1 copy triton_backend/all_models to /app/all_models (tensorrtllm_backend
r25.09 to r26.07, dockerfile/Dockerfile.triton.trt_llm_backend). That model reads the model.yaml beside this file, for
it asks Triton for the folder. This file is copied alone and runs inside Triton: it imports nothing of trtspec.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

FOLDER_VARIABLE = "TRTSPEC_LLMAPI_MODEL"
FOLDER_IN_CONTAINER = "/app/all_models/llmapi/tensorrt_llm/1"
_MODULE = "nvidia_llmapi_model"


class TritonPythonModel:
    """What Triton calls; the docstrings of Triton's Python backend say when."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        return load_nvidia_model().auto_complete_config(config)

    def initialize(self, args: dict[str, str]) -> None:
        self._model = load_nvidia_model()()
        self._model.initialize(args)

    def execute(self, requests: list[Any]) -> Any:
        return self._model.execute(requests)

    def finalize(self) -> None:
        self._model.finalize()


def load_nvidia_model() -> Any:
    """NVIDIA's TritonPythonModel class. Raises RuntimeError where its model.py is not there."""
    if _MODULE in sys.modules:
        return sys.modules[_MODULE].TritonPythonModel
    folder = os.environ.get(FOLDER_VARIABLE, FOLDER_IN_CONTAINER)
    file = os.path.join(folder, "model.py")  # noqa: PTH118 (as plain as what Triton's stub has at hand)
    spec = importlib.util.spec_from_file_location(_MODULE, file)
    if spec is None or spec.loader is None or not os.path.isfile(file):  # noqa: PTH113
        raise RuntimeError(
            f"NVIDIA's LLM API model is not at {file}. Serve this repository in NVIDIA's Triton container with "
            f"TensorRT-LLM 1.0 or newer, or set {FOLDER_VARIABLE} to the folder of model.py in TensorRT-LLM's "
            "triton_backend/all_models/llmapi/tensorrt_llm/1."
        )
    sys.path.insert(0, folder)  # it imports helpers.py beside it
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_MODULE]
        raise
    return module.TritonPythonModel
