"""How the OpenAI endpoint starts beside Triton: its arguments, packages and image. It needs no GPU."""

from __future__ import annotations

from trt_spec import __version__

MODULE = "trt_spec.openai"
PACKAGES = ("grpc", "httptools", "jinja2", "prometheus_client", "starlette", "tokenizers", "tritonclient", "uvicorn")
"""What the extra ``openai`` installs, by the names of import."""
EXTRA = "pip install 'trtspec[openai]'"
HEALTH_PATH = "/health"  # answers 200 once Triton serves the orchestrator
API_KEYS_VARIABLE = "TRTSPEC_API_KEYS"
# NVIDIA's container has none of this, so the endpoint has an image of its own: stage `openai` of trtspec's Dockerfile.
IMAGE = f"trtspec-openai:{__version__}"
BUILD_IMAGE = f"docker build --target openai --tag {IMAGE} ."


def openai_arguments(*, triton: str, repository: str, name: str, host: str, port: int) -> tuple[str, ...]:
    """Arguments of the module: ``triton`` is host:port of gRPC, ``name`` what clients call the model."""
    return (
        f"--triton={triton}",
        f"--repository={repository}",
        f"--model-name={name}",
        f"--host={host}",
        f"--port={port}",
    )
