"""Prompts: ours, and files of users with one fault each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from trt_spec.errors import SpecError
from trt_spec.verify.workload import load_prompts


def test_built_in_prompts_are_many_and_of_many_kinds() -> None:
    prompts = load_prompts()
    kinds = Counter(prompt.kind for prompt in prompts)
    assert len(prompts) >= 24
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert set(kinds) >= {"chat", "code", "maths", "summarising", "translation", "extraction", "lists", "korean"}
    assert set(kinds) >= {"emoji", "other languages", "json", "story"}
    assert any("\uac00" <= char <= "\ud7a3" for prompt in prompts for char in prompt.text)
    assert any(ord(char) > 0x1F000 for prompt in prompts for char in prompt.text)


def test_both_spellings_blank_lines_and_defaults(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes('\ufeff{"text": "a\u2028b"}\r\n\n{"prompt": "c", "id": 7, "kind": "mine"}\n'.encode())
    first, second = load_prompts(path)
    assert (first.id, first.kind, first.text) == ("line-1", "user", "a\u2028b")
    assert (second.id, second.kind, second.text) == ("7", "mine", "c")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "a"', "not valid JSON"),
        ('["a"]', "object was expected, found list"),
        ('{"txt": "a"}', "found neither (keys: 'txt')"),
        ("{}", "found neither (keys: none)"),
        ('{"text": "a", "prompt": "b"}', "found both"),
        ('{"text": ""}', "non-empty"),
        ('{"text": 5}', "non-empty string, found 5"),
        ('{"messages": [{"role": "user", "content": "a"}]}', '"messages"'),
        ('{"text": "\\ud800"}', "lone surrogate"),
        ('{"text": "a", "id": ""}', "'id'"),
        ('{"text": "a", "id": true}', "'id'"),
        ('{"text": "a", "kind": []}', "'kind'"),
        ('{"text": "a", "id": "line-1"}', "already taken by line 1"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(f'{{"text": "good"}}\n\n{line}\n', encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_prompts(path)
    assert "line 3" in str(caught.value) and words in str(caught.value)
    assert caught.value.remedy


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "\xff"}\n')
    with pytest.raises(SpecError, match="line 2: byte 11"):
        load_prompts(path)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_unreadable_file(tmp_path: Path, make) -> None:
    path = tmp_path / "p.jsonl"
    make(path)
    with pytest.raises(SpecError, match="cannot be read"):
        load_prompts(path)


def test_file_without_prompts(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(SpecError, match="holds no prompt"):
        load_prompts(path)
