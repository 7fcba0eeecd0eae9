"""Several answers as one stream."""

import asyncio

import pytest

from trt_spec.openai.merged import merge

OPEN = []


async def count(name, stop, error=None):
    OPEN.append(name)
    try:
        for number in range(stop):
            await asyncio.sleep(0)
            yield name, number
        if error is not None:
            raise error
    finally:
        OPEN.remove(name)


async def gather(sources):
    return [item async for item in merge(sources)]


@pytest.mark.parametrize("names", ["a", "abc", "abcdefgh"])
def test_all_items_come_in_the_order_of_their_source(names):
    found = asyncio.run(gather([count(name, 20) for name in names]))
    for name in names:
        assert [number for source, number in found if source == name] == list(range(20))
    assert len(found) == 20 * len(names)
    assert not OPEN


@pytest.mark.parametrize("names", ["a", "abc"])
def test_the_first_error_ends_all(names):
    sources = [count(name, 5, ValueError(name) if name == "a" else None) for name in names]
    with pytest.raises(ValueError, match="a"):
        asyncio.run(gather(sources))
    assert not OPEN


@pytest.mark.parametrize("names", ["a", "abc"])
def test_who_stops_listening_closes_every_source(names):
    async def listen():
        merged = merge([count(name, 1000) for name in names])
        assert (await anext(merged))[1] == 0
        await merged.aclose()

    asyncio.run(listen())
    assert not OPEN
