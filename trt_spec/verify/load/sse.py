"""Server-sent events out of the byte chunks of an HTTP answer: the part of the format that LLM servers use."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

_MAX_EVENT_BYTES = 64 * 2**20


async def read_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The data of every event; several ``data:`` lines of one event are joined by newlines.

    Lines may end in LF or CRLF and chunks anywhere, also within a character. Comments and other fields are skipped. An
    event that the end of the answer cuts off is still returned: Triton ends without a blank line on errors. Raises
    ValueError for an event beyond 64 MiB.
    """
    rest = b""
    data: list[bytes] = []
    async for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _MAX_EVENT_BYTES:
            raise ValueError(f"a line of more than {_MAX_EVENT_BYTES} bytes")
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        yield b"\n".join(data)
