"""The ASGI application: its paths, and what surrounds them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trt_spec.openai.api_error import ApiError
from trt_spec.openai.endpoint_metrics import CONTENT_TYPE
from trt_spec.openai.generate_endpoint import ChatEndpoint, CompletionEndpoint
from trt_spec.openai.request_fields import check_model
from trt_spec.openai.service import Service
from trt_spec.openai.triton_connection import TritonConnection


def make_app(service: Service) -> Starlette:
    """The application of one model. The connection to Triton lives as long as its lifespan."""
    settings = service.settings

    async def list_models(request: Request) -> Response:
        service.keys.check(_authorization(request))
        models = [_describe(name) for name in settings.model_names]
        return JSONResponse({"object": "list", "data": models})

    async def show_model(request: Request) -> Response:
        service.keys.check(_authorization(request))
        name = request.path_params["name"]
        check_model(name, settings.model_names)
        return JSONResponse(_describe(name))

    def _describe(name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": service.started, "owned_by": "trtspec"}

    async def health(_request: Request) -> Response:
        is_ready = await service.connection.is_ready()
        return JSONResponse({"status": "ok" if is_ready else "unavailable"}, 200 if is_ready else 503)

    async def metrics(_request: Request) -> Response:
        return Response(service.metrics.render(), media_type=CONTENT_TYPE)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        service.open_connection = TritonConnection(settings.triton, settings.request_timeout_s)
        try:
            yield
        finally:
            await service.open_connection.close()

    middleware = []
    if settings.allowed_origins:
        origins = list(settings.allowed_origins)
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]))
    return Starlette(
        routes=[
            Route(ChatEndpoint.path, ChatEndpoint(service), methods=["POST"]),
            Route(CompletionEndpoint.path, CompletionEndpoint(service), methods=["POST"]),
            Route("/v1/models", list_models),
            Route("/v1/models/{name:path}", show_model),
            Route("/health", health),
            Route("/metrics", metrics),
        ],
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={ApiError: _api_error, HTTPException: _http_error},
    )


def _authorization(request: Request) -> bytes | None:
    value = request.headers.get("authorization")
    return None if value is None else value.encode("latin-1")


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """An unknown path or method, in the API's own words."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:200]}: {error.detail}. The paths are those of the OpenAI API."
    refusal = ApiError(error.status_code, message)
    return JSONResponse(refusal.body(), error.status_code, dict(error.headers or {}))
