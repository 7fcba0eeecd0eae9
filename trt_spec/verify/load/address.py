"""Which kind of endpoint an address is."""

from __future__ import annotations

from urllib.parse import urlsplit

from trt_spec.serve.contract import STREAMING_MODEL
from trt_spec.verify.load.openai import OpenAIEndpoint
from trt_spec.verify.load.request import Endpoint
from trt_spec.verify.load.triton_grpc import TritonGrpcEndpoint
from trt_spec.verify.load.triton_http import TritonHttpEndpoint


def is_http(url: str) -> bool:
    """Whether the address is one of HTTP."""
    return url.startswith(("http://", "https://"))


def resolve_endpoint(url: str, model: str | None = None, *, api_key: str | None = None) -> Endpoint:
    """HOST:PORT is Triton's gRPC, http://HOST:PORT Triton's HTTP, a path with /v1 an OpenAI-compatible server.

    A path that ends in /chat/completions asks for chat messages, /completions or /v1 alone for raw prompts.
    """
    if not is_http(url):
        return TritonGrpcEndpoint(url, model or STREAMING_MODEL)
    path = urlsplit(url).path.rstrip("/")
    if "/v1" not in path:
        return TritonHttpEndpoint(url, model or STREAMING_MODEL)
    stripped = url.rstrip("/")
    if path.endswith("/chat/completions"):
        base = stripped.removesuffix("/chat/completions")
        return OpenAIEndpoint(base, model, route="chat/completions", api_key=api_key)
    return OpenAIEndpoint(stripped.removesuffix("/completions"), model, api_key=api_key)
