from __future__ import annotations

import subprocess

import pytest

from trt_spec.deploy.shell_words import join_words, quote_word

WORDS = [
    "plain",
    "",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "$(id)",
    "a\\$b",
    'q"$x"',
    "new\nline$",
    "*",
    "~",
    "!x$",
    "모델$",
]


@pytest.mark.parametrize("word", WORDS)
def test_a_shell_gets_the_word_back(word: str) -> None:
    done = subprocess.run(["bash", "-c", f"printf %s {quote_word(word)}"], capture_output=True, text=True, check=True)
    assert done.stdout == word


def test_a_command_keeps_its_words_apart() -> None:
    script = f"for word in {join_words(WORDS)}; do printf '%s\\0' \"$word\"; done"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == WORDS
