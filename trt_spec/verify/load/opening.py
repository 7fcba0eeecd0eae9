"""How endpoints are opened: whole or not at all, and closed in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trt_spec.errors import SpecError
from trt_spec.verify.load.request import Endpoint


@asynccontextmanager
async def opening(endpoint: Endpoint) -> AsyncIterator[None]:
    """Closes what was opened inside if the rest of it fails."""
    try:
        yield
    except BaseException:
        await endpoint.close()
        raise


@asynccontextmanager
async def opened(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    """The endpoint, open for the length of a with block."""
    await endpoint.open()
    try:
        yield endpoint
    finally:
        await endpoint.close()


def no_such_model(server: str, model: str | None, why: str) -> SpecError:
    """What ``open`` raises for a model that the server does not have."""
    return SpecError(f"{server} serves no model {model!r} ({why}).", remedy="Name one of its models.")
