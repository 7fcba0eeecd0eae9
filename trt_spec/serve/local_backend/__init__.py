"""A Python-based Triton backend named ``tensorrtllm``: ONNX engines behind the tensors of NVIDIA's."""
