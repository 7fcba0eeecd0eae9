"""Text to token ids and back, with the model's own ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"
MAX_UNFINISHED = 3
"""Bytes of a character that is not complete yet; decoders show each of them, or all together, as one BROKEN."""

_ANCHOR = "a"  # any text of ordinary tokens does


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
    """Decodes a growing sequence of ids piece by piece, never splitting a character that spans tokens.

    The pieces do not depend on how the ids were cut, and together they are the text of all ids.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []  # since the last border between characters
        self._before: tuple[int, ...] = ()
        self._before_chars = 0
        self._shown_chars = 0

    def push(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` complete; the beginning of an unfinished character is held back."""
        pieces = []
        for token in ids:
            self._ids.append(token)
            text = self._text()
            unfinished = len(text) - len(text.rstrip(BROKEN))
            # No character needs more bytes: what is broken further back stays broken.
            pieces.append(self._show(text, len(text) - min(unfinished, MAX_UNFINISHED)))
            if text and not unfinished:
                self._ids, self._shown_chars = [], 0
                # Some decoders treat the first token of a text differently. What stands before must be text of its
                # own: a byte-fallback decoder breaks all of a run of bytes that does not end well.
                if not self._before:
                    self._before = self._tokenizer.encode_word(_ANCHOR)
                    self._before_chars = len(self._tokenizer.decode(self._before))
        return "".join(pieces)

    def finish(self) -> str:
        """What was held back; bytes that never became a character read as U+FFFD."""
        text = self._text()
        return self._show(text, len(text))

    def _show(self, text: str, end: int) -> str:
        piece = text[self._shown_chars : end]
        self._shown_chars = max(self._shown_chars, end)
        return piece

    def _text(self) -> str:
        """The text of the ids since the border."""
        return self._tokenizer.decode([*self._before, *self._ids])[self._before_chars :]


def _load_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
