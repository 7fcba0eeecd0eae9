"""trtspec: speculative decoding on TensorRT-LLM and Triton from one spec file."""

__version__ = "0.1.0"
