"""One answer while it arrives: pieces of Triton to deltas of the API, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from trt_spec.openai.generation import Generation
from trt_spec.openai.stop_text import StopFilter
from trt_spec.openai.wire import NOTHING_DRAFTED, Piece, Speculation

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Delta:
    """What one step adds to a choice. The last one has a ``finish_reason``, and the counts of the whole."""

    choice: int
    text: str
    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    finish_reason: FinishReason | None = None
    total_tokens: int = 0
    speculation: Speculation = NOTHING_DRAFTED


async def follow_answer(
    pieces: AsyncGenerator[Piece, None], asked: Generation, choice: int
) -> AsyncGenerator[Delta, None]:
    """The deltas of one choice. Its stop text is left out of it, and nothing behind that is waited for."""
    stops, tokens, last_id, last_piece = StopFilter(asked.stops), 0, None, None
    async with aclosing(pieces):
        async for piece in pieces:
            if piece.outputs:  # the final one may have none
                last_piece = piece
            if piece.ids:
                tokens, last_id = tokens + len(piece.ids), piece.ids[-1]
            text = stops.push(piece.text)
            if text or piece.ids:
                yield Delta(choice, text, piece.ids, piece.log_probs)
            if stops.stopped:
                break
    is_cut = tokens >= asked.max_tokens and not stops.stopped and last_id not in asked.stop_ids
    yield Delta(
        choice,
        stops.finish(),
        finish_reason="length" if is_cut else "stop",
        total_tokens=tokens,
        speculation=NOTHING_DRAFTED if last_piece is None else last_piece.speculation(),
    )
