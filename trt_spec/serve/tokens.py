"""Text to token ids and back, with the model's own ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"


class TextTokenizer:
    """Encodes prompts and decodes answers of the model whose files lie in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = _load_json(folder / "tokenizer_config.json")
        generation = {**_load_json(folder / "config.json"), **_load_json(folder / "generation_config.json")}
        bos = settings.get("bos_token")
        self._bos_id = self._tokenizer.token_to_id(bos["content"] if isinstance(bos, dict) else bos) if bos else None
        eos = generation.get("eos_token_id")
        self.end_ids: tuple[int, ...] = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
        """Ids that end an answer, the first of them being the engine's end id."""

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with exactly one BOS where the tokenizer adds one and the text may bring its own."""
        ids: list[int] = self._tokenizer.encode(text).ids
        if len(ids) > 1 and ids[0] == ids[1] == self._bos_id:
            del ids[0]
        return ids

    def encode_word(self, text: str) -> tuple[int, ...]:
        """Ids of a stop word, without anything the tokenizer adds at the beginning."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


class TextStream:
    """Decodes a growing sequence of ids piece by piece, never splitting a character that spans tokens."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        # Decoding starts a token group early, because some decoders treat the first token of a text differently.
        self._context_start = 0
        self._shown_end = 0

    def push(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` complete; empty while a character is still unfinished."""
        self._ids.extend(ids)
        text, shown = self._window()
        if len(text) <= len(shown) or text.endswith(BROKEN):
            return ""
        self._context_start, self._shown_end = self._shown_end, len(self._ids)
        return text[len(shown) :]

    def finish(self) -> str:
        """What was held back; bytes that never became a character read as U+FFFD."""
        text, shown = self._window()
        self._shown_end = len(self._ids)
        return text[len(shown) :]

    def _window(self) -> tuple[str, str]:
        decode, start = self._tokenizer.decode, self._context_start
        return decode(self._ids[start:]), decode(self._ids[start : self._shown_end])


def _load_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
