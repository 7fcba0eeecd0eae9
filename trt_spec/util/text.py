"""Text of strangers: fit to be printed and encoded."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return ``text`` with everything escaped that could steer a terminal or break a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def encodable(text: str) -> str:
    """Return ``text`` with everything escaped that UTF-8 cannot encode: bytes of foreign file names."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def join_choices(choices: tuple[str, ...]) -> str:
    """``a, b or c``."""
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
