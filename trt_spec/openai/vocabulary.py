"""The model's tokenizer, as the endpoint needs it: counts, and texts of single tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from trt_spec.openai.api_error import bad_request
from trt_spec.serve.tokens import BROKEN, TextTokenizer

MANY_CHARS = 4096
"""A longer text is encoded in a thread, so that nobody waits for it; the tokenizer lets other threads run."""


class Vocabulary:
    """Tokenizer of the folder that the orchestrator reads, so that both agree on every id."""

    def __init__(self, folder: Path) -> None:
        self._text = TextTokenizer(folder)
        self._raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._special = {token for token, added in self._raw.get_added_tokens_decoder().items() if added.special}
        self._to_byte = _byte_level_alphabet()
        self.longest_token = self._text.longest_token

    async def encode(self, text: str) -> list[int]:
        """Ids of a prompt, as the orchestrator will see it."""
        if len(text) <= MANY_CHARS:
            return self._text.encode(text)
        return await asyncio.to_thread(self._text.encode, text)

    def prompt_text(self, ids: Sequence[int]) -> str:
        """The text that is encoded to these very ids. ApiError where there is none: the orchestrator takes text."""
        bos = self._text.encode("")
        text: str = self._raw.decode(list(ids), skip_special_tokens=False)
        for candidate in (text, self._raw.decode(list(ids[len(bos) :]), skip_special_tokens=False)):
            if self._text.encode(candidate) == list(ids):
                return candidate
        raise bad_request(
            "These token ids are not what this model's tokenizer makes of their text, and only text can be sent on. "
            "Send the prompt as text.",
            "prompt",
        )

    def stop_word(self, token: int) -> str:
        """The text by which a special token is made a stop word. ApiError for any other token."""
        if token not in self._special:
            raise bad_request(
                f"stop_token_ids: {token} is no special token of this model. Send its text as stop.", "stop_token_ids"
            )
        return str(self._raw.id_to_token(token))

    def bias_word(self, token: int) -> str:
        """The text that is encoded to this token alone. ApiError where there is none."""
        for text in (self._raw.decode([token], skip_special_tokens=False), self._raw.id_to_token(token)):
            if text and self._text.encode_word(text) == (token,):
                return str(text)
        raise bad_request(
            f"logit_bias: no text is encoded to token {token} alone, and a bias is sent on as text.", "logit_bias"
        )

    def token_text(self, token: int) -> str:
        """How one token reads alone; U+FFFD stands for a part of a character."""
        text: str = self._raw.decode([token], skip_special_tokens=False)
        return text

    def token_bytes(self, token: int) -> list[int] | None:
        """The bytes of one token, None where the tokenizer does not tell."""
        text = self.token_text(token)
        if BROKEN not in text:
            return list(text.encode("utf-8"))
        name = self._raw.id_to_token(token) or ""
        if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            return [int(name[3:5], 16)]
        found = [self._to_byte.get(character) for character in name]
        return None if None in found else [byte for byte in found if byte is not None]


@lru_cache(maxsize=1)
def _byte_level_alphabet() -> dict[str, int]:
    """The character that byte-level tokenizers write for each byte (GPT-2's encoder.py), the other way round."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
