"""Who may ask: keys from a file or the environment, compared in constant time and never shown."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from pathlib import Path

from trt_spec.errors import SpecError
from trt_spec.openai.api_error import ApiError
from trt_spec.plan.openai_launch import API_KEYS_VARIABLE


class ApiKeys:
    """Digests of the keys: of equal length, so that comparing takes equally long; without keys everybody may ask."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = tuple(_digest(key.encode("utf-8")) for key in keys)

    def check(self, authorization: bytes | None) -> None:
        """ApiError 401 unless the header carries one of the keys."""
        if not self._digests:
            return
        scheme, _, key = (authorization or b"").partition(b" ")
        found = _digest(key.strip())
        matches = [hmac.compare_digest(found, digest) for digest in self._digests]  # all of them, whichever matches
        if scheme.lower() != b"bearer" or not any(matches):
            raise ApiError(
                401,
                "No valid API key: send the header Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def load_api_keys(file: Path | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Keys of a file, one a line, and those of TRTSPEC_API_KEYS, separated by commas. SpecError for an empty file."""
    found = [key.strip() for key in environment.get(API_KEYS_VARIABLE, "").split(",")]
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"The file of API keys {file} cannot be read.", remedy="Name a readable one.") from error
        if not any(lines):
            raise SpecError(f"The file of API keys {file} holds none.", remedy="Write one key a line.")
        found += lines
    return tuple(key for key in found if key)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
