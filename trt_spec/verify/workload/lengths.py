"""Prompts of an exact number of tokens, cut from natural text."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence

from trt_spec.errors import SpecError

CountTokens = Callable[[str], int]

# Adding one character changes the count by -1 to +3 in byte-pair encodings, so the exact count lies near the first
# crossing in almost every text; another shuffle of the sentences helps the rest.
_NEAR_CHARACTERS = 48
_SHUFFLES = 16
_FILLERS = (" -", "-", ".", "!", " a", "x", "7")


def fit_text(texts: Sequence[str], tokens: int, count: CountTokens, seed: int, *, beginning: str = "") -> str:
    """A text of exactly ``tokens`` by ``count``, made of ``texts`` in an order of the seed, cut at a character.

    ``beginning`` stays in front. ``count`` counts what the engine gets, chat template included. Raises SpecError where
    no cut gives that count: the template alone is longer, or the texts say too little.
    """
    least = count(beginning)
    if least > tokens:
        raise SpecError(
            f"A prompt of {tokens} tokens is impossible: the chat template and the beginning take {least}.",
            remedy=f"Ask for more than {least} tokens.",
        )
    for attempt in range(_SHUFFLES):
        cut = _cut(
            _write(texts, tokens, count, random.Random(f"{seed}:{attempt}"), beginning), beginning, tokens, count
        )
        if cut is not None:
            return cut
    raise SpecError(
        f"No text of exactly {tokens} tokens was found with this tokenizer.", remedy="Ask for a few tokens more."
    )


def draw_tokens(low: int, high: int, count: int, seed: int) -> tuple[int, ...]:
    """``count`` lengths, evenly spread over low..high inclusive; the same for the same seed."""
    if not 1 <= low <= high:
        raise SpecError(f"{low} to {high} is no range of lengths.", remedy="Give 1 <= low <= high.")
    draw = random.Random(seed)
    return tuple(draw.randint(low, high) for _ in range(count))


def _write(texts: Sequence[str], tokens: int, count: CountTokens, draw: random.Random, beginning: str) -> str:
    """At least ``tokens`` tokens: the texts in random order, over and over."""
    written = beginning
    while count(written) < tokens + 1:
        order = list(texts)
        draw.shuffle(order)
        for text in order:
            written += ("\n\n" if written else "") + text
            # Four characters a token is a coarse guess that only saves counting.
            if len(written) > 4 * tokens and count(written) > tokens:
                return written
    return written


def _cut(text: str, beginning: str, tokens: int, count: CountTokens) -> str | None:
    low = len(beginning)
    ends = range(low, len(text) + 1)
    crossing = low + bisect_left(ends, tokens, key=lambda end: count(text[:end]))
    for distance in range(_NEAR_CHARACTERS):
        for end in (crossing + distance, crossing - distance):
            if low <= end <= len(text) and count(text[:end]) == tokens:
                return text[:end]
    return _fill(text[:crossing], low, tokens, count)


def _fill(text: str, low: int, tokens: int, count: CountTokens) -> str | None:
    """A character of a script that the tokenizer hardly knows is several tokens: such a text ends in a few fillers."""
    while len(text) > low and count(text) >= tokens:
        text = text[:-1]
    for _ in range(_NEAR_CHARACTERS):
        if count(text) == tokens:
            return text
        longer = {count(text + piece): text + piece for piece in _FILLERS}
        text = longer.get(min((n for n in longer if count(text) < n <= tokens), default=-1), "")
        if not text:
            return None
    return None
