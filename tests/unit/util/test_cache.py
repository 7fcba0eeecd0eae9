from __future__ import annotations

from pathlib import Path

import pytest

from trt_spec.util.cache import resolve_cache_dir


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [
        ("/o", "/x", "/o"),
        ("~/o", "/x", "/home/someone/o"),
        ("", "/x", "/x/trtspec"),
        ("", "relative", "/home/someone/.cache/trtspec"),
        ("", "", "/home/someone/.cache/trtspec"),
    ],
)
def test_the_first_that_is_set_wins(monkeypatch, own: str, xdg: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("TRTSPEC_CACHE", own)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert resolve_cache_dir() == Path(expected)
