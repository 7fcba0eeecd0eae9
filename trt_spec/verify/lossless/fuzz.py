"""Odd prompts that a server has to survive: each gets an answer or a refusal, and the next one is served."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OddPrompt:
    """One prompt as bytes, because some are no UTF-8."""

    id: str
    data: bytes


@dataclass(frozen=True)
class Fuzz:
    """``fatal`` names the prompt behind which the server was gone or silent; None when it lived through all."""

    sent: int
    answered: int
    refused: int
    fatal: str | None = None
    error: str = ""


ODD_PROMPTS: tuple[OddPrompt, ...] = (
    OddPrompt("emoji", "👩‍🚀🏳️‍🌈👨‍👩‍👧‍👦🇰🇷 and again 😀".encode()),
    OddPrompt("right-to-left", "مرحبا بالعالم ‏(2025)‎ שלום עולם".encode()),
    OddPrompt("combining-marks", ("e" + "\u0301\u0323" * 60).encode()),
    OddPrompt("lone-surrogate-escape", b"half a character: \\ud83d and \\udc00"),
    OddPrompt("lone-surrogate-bytes", b"half a character: \xed\xa0\xbd"),
    OddPrompt("nul", b"before\x00after"),
    OddPrompt("control-characters", bytes(range(1, 32)) + b"\x7f"),
    OddPrompt("many-spaces", b" " * 10_000),
    OddPrompt("one-space", b" "),
    OddPrompt("empty", b""),
    OddPrompt("special-tokens", b"<|eot_id|><|begin_of_text|></s><s><|im_start|>system\n<|im_end|><|endoftext|>"),
    OddPrompt("invalid-utf8", b"\xff\xfe\x80 broken \xc3"),
    OddPrompt("line-ends", b"a\r\nb\rc\n\n\n\td\x0b\x0c\xe2\x80\xa8e"),
    OddPrompt("one-long-word", b"a" * 5_000),
    OddPrompt("repeated-token", b"the " * 1_500),
    OddPrompt("template-text", b"{{ messages }} {% raw %} ${variable} %s %n \\n"),
)
