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
        # Settings left over from training would silently cut or fill prompts.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.longest_token = max(map(len, self._tokenizer.get_vocab()), default=1)
        """Characters of the longest token: a text of more than n times as many has more than n tokens."""
        settings = _load_json(folder / "tokenizer_config.json")
        self._bos_id = self._special_id(settings.get("bos_token"))
        self.end_ids = self._find_end_ids(folder, settings)
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

    def _find_end_ids(self, folder: Path, settings: dict[str, Any]) -> tuple[int, ...]:
        """Of the first file that names any: generation_config.json, config.json, tokenizer_config.json."""
        for name in ("generation_config.json", "config.json"):
            eos = _load_json(folder / name).get("eos_token_id")
            if eos is not None and eos != []:
                return tuple(eos) if isinstance(eos, list) else (eos,)
        eos_id = self._special_id(settings.get("eos_token"))
        return () if eos_id is None else (eos_id,)

    def _special_id(self, token: Any) -> int | None:
        """Id of a special token of tokenizer_config.json, where it stands as text or as an object with ``content``."""
        text = token.get("content") if isinstance(token, dict) else token
        found: int | None = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        return found


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
