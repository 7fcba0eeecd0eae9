"""Tokens and their texts, by the two tiny tokenizers: one that adds a BOS and one that does not."""

import asyncio

import pytest

from trt_spec.openai.api_error import ApiError
from trt_spec.openai.vocabulary import MANY_CHARS, Vocabulary


@pytest.fixture(params=["tokenizer", "tokenizer-bos"])
def vocabulary(tiny, request):
    return Vocabulary(tiny / request.param)


def encode(vocabulary, text):
    return asyncio.run(vocabulary.encode(text))


@pytest.mark.parametrize("text", ["hello", "안녕 😀", "", " x\n"])
def test_ids_of_a_text_are_that_text_again(vocabulary, text):
    ids = encode(vocabulary, text)
    if ids:
        assert encode(vocabulary, vocabulary.prompt_text(ids)) == ids


def test_a_long_text_has_the_same_ids(vocabulary):
    text = "hello 안녕 " * MANY_CHARS
    assert encode(vocabulary, text) == vocabulary._text.encode(text)


def test_a_rendered_prompt_has_one_bos(vocabulary):
    bos = vocabulary._raw.token_to_id("<|bos|>")
    assert encode(vocabulary, "<|bos|>hello").count(bos) == 1


def test_bytes_of_all_tokens_are_those_of_the_text(vocabulary):
    text = "안녕, naïve 😀!"
    ids = encode(vocabulary, text)
    joined = bytes(byte for token in ids for byte in vocabulary.token_bytes(token))
    assert joined.decode().removeprefix("<|bos|>") == text


def test_only_special_tokens_are_stop_words(vocabulary):
    assert vocabulary.stop_word(vocabulary._raw.token_to_id("<|eos|>")) == "<|eos|>"
    for token in (40, 99_999):
        with pytest.raises(ApiError, match=f"{token} is no special token"):
            vocabulary.stop_word(token)


def test_a_bias_word_is_that_token_alone(vocabulary):
    found = 0
    for token in range(320):
        try:
            word = vocabulary.bias_word(token)
        except ApiError:
            continue
        assert vocabulary._text.encode_word(word) == (token,)
        found += 1
    assert found > 90


def test_ids_without_a_text_are_refused(vocabulary):
    with pytest.raises(ApiError, match="Send the prompt as text"):
        vocabulary.prompt_text([10**6])
