"""Several asynchronous iterators as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

Item = TypeVar("Item")


async def merge(sources: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[Item, None]:
    """Items of all ``sources`` as they come, in order within each. The first error of any ends all of them."""
    if len(sources) == 1:  # nothing to wait for beside it
        async with aclosing(sources[0]) as only:
            async for item in only:
                yield item
        return
    queue: asyncio.Queue[Item | None] = asyncio.Queue(maxsize=len(sources))

    async def pump(source: AsyncGenerator[Item, None]) -> None:
        async with aclosing(source) as items:
            async for item in items:
                await queue.put(item)

    async def pump_all() -> None:
        async with asyncio.TaskGroup() as group:
            for source in sources:
                group.create_task(pump(source))
        await queue.put(None)

    pumps = asyncio.create_task(pump_all())
    try:
        while (given := await _next(queue, pumps)) is not None:
            yield given
        await pumps
    finally:
        pumps.cancel()
        await asyncio.gather(pumps, return_exceptions=True)


async def _next(queue: asyncio.Queue[Item | None], pumps: asyncio.Task[None]) -> Item | None:
    """The next item; raises what ended the sources, once all that they gave before is taken."""
    get = asyncio.create_task(queue.get())
    await asyncio.wait({get, pumps}, return_when=asyncio.FIRST_COMPLETED)
    if get.done():
        return get.result()
    get.cancel()
    if not queue.empty():
        return queue.get_nowait()
    error = pumps.exception()
    raise error.exceptions[0] if isinstance(error, BaseExceptionGroup) else (error or RuntimeError("sources ended"))
