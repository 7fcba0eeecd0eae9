"""Prompts: ours, and files of users with one fault each."""

from __future__ import annotations

import json
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


def test_the_whole_set_has_every_category_in_several_lengths() -> None:
    prompts = load_prompts(whole=True)
    assert len(prompts) >= 130 and set(load_prompts()) < set(prompts)
    assert len({prompt.text for prompt in prompts}) == len({prompt.id for prompt in prompts}) == len(prompts)
    for kind in ("chat", "code", "maths", "summarising", "translation", "extraction", "korean"):
        lengths = sorted(len(prompt.text) for prompt in prompts if prompt.kind == kind)
        assert len(lengths) >= 13 and lengths[-1] > 3 * lengths[0]
    assert max(len(prompt.text) for prompt in prompts) > 1000


def test_layouts_of_the_field(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "u"}]},
            ]
        },
        {"custom_id": "b", "body": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}},
        {"id": "g", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        {"turns": [{"text": "one"}, {"text": "two"}]},
        {"timestamp": 1500, "text_input": "t", "output_length": 20},
        {"timestamp": 2500, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    chat, batch, share, turns, trace, lengths = load_prompts(path)
    assert (chat.text, chat.turns) == ("u", (("system", "s"), ("user", "u")))
    assert (batch.id, batch.text, batch.turns, batch.output_tokens) == ("b", "x", (), 9)
    assert (share.id, share.text, share.turns) == ("g", "q", ())
    assert (turns.text, turns.turns) == ("two", (("user", "one"), ("user", "two")))
    assert (trace.text, trace.timestamp_s, trace.output_tokens) == ("t", 1.5, 20)
    assert (lengths.text, lengths.timestamp_s, lengths.input_tokens, lengths.output_tokens) == ("", 2.5, 655, 52)


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
        ('{"txt": "a"}', "found none (keys: 'txt')"),
        ("{}", "found none (keys: none)"),
        ('{"text": "a", "prompt": "b"}', "found 'text' and 'prompt'"),
        ('{"text": ""}', "non-empty"),
        ('{"text": 5}', "non-empty string, found 5"),
        ('{"messages": []}', "'messages' must be a list of messages"),
        ('{"messages": [{"role": "system", "content": "a"}]}', "holds no message of a user"),
        ('{"messages": [{"role": "robot", "content": "a"}]}', "message 1 of 'messages': 'role' must be one of"),
        ('{"messages": [{"role": "user"}]}', "'content' must be a non-empty string, found None"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "only parts of type 'text'"),
        ('{"conversations": [{"from": "human", "value": "a"}, "b"]}', "message 2 of 'conversations' must be an object"),
        ('{"turns": [{"text": ""}]}', "message 1 of 'turns': 'text' must be"),
        ('{"text": "a", "timestamp": -1}', "'timestamp' must be a number of at least 0"),
        ('{"text": "a", "output_length": 0}', "'output_length' must be a whole number"),
        ('{"input_length": true}', "'input_length' must be a whole number"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "user", "content": "b"}]}', "lone surrogate"),
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
