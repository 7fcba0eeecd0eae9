"""Written by trtspec: the entry point that Triton loads; the code is the package beside this file."""

from trtspec_serve.orchestrator_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
