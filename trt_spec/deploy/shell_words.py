"""Words of commands in the scripts that trtspec writes, quoted so that shellcheck has nothing to ask about them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable


def quote_word(text: str) -> str:
    """As shlex quotes it, but for what shellcheck takes for a variable that was forgotten in single quotes (SC2016)."""
    if "$" in text or "`" in text:
        return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'
    return shlex.quote(text)


def join_words(words: Iterable[str]) -> str:
    """A command of which every word stands for itself."""
    return " ".join(map(quote_word, words))
