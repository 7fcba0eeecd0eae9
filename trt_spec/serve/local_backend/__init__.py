"""A Python-based Triton backend named ``tensorrtllm``: ONNX engines behind the tensors of NVIDIA's."""

import os

# ONNX Runtime sends usage data to Microsoft unless this is set before it is imported; a server must not by itself.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
