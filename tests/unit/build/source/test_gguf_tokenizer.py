from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from trt_spec.build.source.gguf_metadata import Metadata, open_gguf
from trt_spec.build.source.gguf_tokenizer import render_tokenizer, tokenizer_config
from trt_spec.errors import SpecError


def load(tiny, tmp_path: Path) -> Metadata:
    path = tiny.write(tmp_path / "tiny.gguf")
    return Metadata(path, open_gguf(path))


def tokenizer_of(tiny, tmp_path: Path) -> Tokenizer:
    return Tokenizer.from_str(render_tokenizer(load(tiny, tmp_path)))


def test_every_digit_of_every_script_is_a_piece_of_its_own(tiny, tmp_path: Path, digits: str) -> None:
    tokenizer = tokenizer_of(tiny, tmp_path)
    encoded = tokenizer.encode(digits)
    # The vocabulary has a token for each pair of neighbours too, so a split that keeps digits together gives fewer.
    assert [tokenizer.decode([index]) for index in encoded.ids] == list(digits)
    assert encoded.offsets == [(i, i + 1) for i in range(len(digits))]


@pytest.mark.parametrize(
    "text", ["plain text", "  two spaces\n\n\ttab ", "안녕하세요 세계", "🎉 👩‍👩‍👧 é è", "x=१२+34", "don't", "a\x00b"]
)
def test_text_comes_back(tiny, tmp_path: Path, text: str) -> None:
    tokenizer = tokenizer_of(tiny, tmp_path)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_ids_are_those_of_the_gguf(tiny, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tiny, tmp_path)
    tokens = tiny.keys["tokenizer.ggml.tokens"]
    assert tokenizer.get_vocab_size() == len(tokens)
    assert [tokenizer.id_to_token(index) for index in range(len(tokens))] == tokens


def test_control_tokens_are_special_and_never_split(tiny, tmp_path: Path) -> None:
    tiny.keys["tokenizer.ggml.token_type"][0] = 4  # user defined: kept whole, but ordinary text
    tokenizer = tokenizer_of(tiny, tmp_path)
    ids = tokenizer.encode("<|im_start|>a<|im_end|><|endoftext|>").ids
    assert [ids[0], *ids[2:]] == [1, 2, 0]
    assert tokenizer.decode(ids) == "a<|endoftext|>"


def test_nothing_is_added_unless_the_gguf_says_so(tiny, tmp_path: Path) -> None:
    assert len(tokenizer_of(tiny, tmp_path).encode("a").ids) == 1
    tiny.keys["tokenizer.ggml.add_bos_token"] = True
    assert tokenizer_of(tiny, tmp_path).encode("a").tokens == ["<|im_start|>", "a"]
    tiny.keys["tokenizer.ggml.add_eos_token"] = True
    assert tokenizer_of(tiny, tmp_path).encode("a").tokens == ["<|im_start|>", "a", "<|im_end|>"]


def test_tokenizer_config_carries_template_and_roles(tiny, tmp_path: Path) -> None:
    config = tokenizer_config(load(tiny, tmp_path))
    assert config["chat_template"] == tiny.keys["tokenizer.chat_template"]
    roles = [config[f"{role}_token"] for role in ("bos", "eos", "unk", "pad")]
    assert roles == ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>"]
    assert config["model_max_length"] == 128


def test_without_template_there_is_none(tiny, tmp_path: Path) -> None:
    del tiny.keys["tokenizer.chat_template"]
    assert "chat_template" not in tokenizer_config(load(tiny, tmp_path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer.ggml.pre": "llama-bpe"}, "'llama-bpe' (tokenizer.ggml.pre), known here: smollm"),
        ({"tokenizer.ggml.model": "llama"}, "a 'llama' tokenizer, expected byte-level BPE"),
        ({"tokenizer.ggml.merges": ["a b", "ab "]}, "the merge 'ab ' is not two pieces"),
        ({"tokenizer.ggml.merges": ["a b"]}, "needs 'ab', which is no token"),
        ({"tokenizer.ggml.tokens": ["<|a|>", "x", "x"]}, "token 'x' is there twice, as 1 and 2"),
        ({"tokenizer.ggml.token_type": [3, 3]}, "but 2 token types"),
    ],
)
def test_contradictions_are_named(tiny, tmp_path: Path, change: dict, said: str) -> None:
    tiny.keys |= change
    with pytest.raises(SpecError) as caught:
        tokenizer_of(tiny, tmp_path)
    assert said in str(caught.value)


def test_an_automatic_token_needs_an_id(tiny, tmp_path: Path) -> None:
    tiny.keys["tokenizer.ggml.add_bos_token"] = True
    del tiny.keys["tokenizer.ggml.bos_token_id"]
    with pytest.raises(SpecError, match="asks for a bos token around every text but names none"):
        tokenizer_of(tiny, tmp_path)
