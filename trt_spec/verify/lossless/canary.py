"""Prompts that each hold a word of their own: another request's word in an answer is a leak. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_LENGTH = 10


@dataclass(frozen=True)
class Canary:
    """One request: its word, and the prompt that asks for it."""

    id: str
    word: str
    text: str


@dataclass(frozen=True)
class Leak:
    """The answer to ``request`` held the word of ``owner``."""

    request: str
    owner: str


@dataclass(frozen=True)
class Isolation:
    """``requests`` canary prompts that were answered, ``concurrency`` in flight together, and what leaked."""

    requests: int
    concurrency: int
    leaks: tuple[Leak, ...]


def make_canaries(count: int, seed: int) -> tuple[Canary, ...]:
    """``count`` prompts of the same shape, so that they share a prefix and an engine's cache is put to work."""
    draw = random.Random(seed)
    words: set[str] = set()
    while len(words) < count:
        words.add("".join(draw.choices(_LETTERS, k=_LENGTH)))
    return tuple(
        Canary(
            f"canary-{number}",
            word,
            f"The code word of this chat is {word}. Repeat the code word:",
        )
        for number, word in enumerate(sorted(words), start=1)
    )


def find_leaks(canaries: Sequence[Canary], answers: Sequence[str]) -> tuple[Leak, ...]:
    """Every answer that holds another's word, spelled in any case."""
    return tuple(
        Leak(asked.id, other.id)
        for asked, answer in zip(canaries, answers, strict=True)
        for other in canaries
        if other.id != asked.id and other.word in answer.upper()
    )
