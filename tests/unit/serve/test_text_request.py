from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from trt_spec.serve.text_request import OrchestratorLimits, read_text_request
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.serve.triton_request import BadRequest, TensorReader

LIMITS = OrchestratorLimits(
    max_input_len=20,
    max_output_len=20,
    max_seq_len=50,
    max_draft_len=10,
    max_inflight_requests=1,
    max_queue_requests=1,
    vocab_size=200,
)


def read(tokenizer: Any = None, **values: Any) -> Any:
    """The request with these inputs, for a tokenizer of one token a character unless another is given."""
    tokenizer = tokenizer or types.SimpleNamespace(
        encode=lambda text: [ord(char) for char in text],
        encode_word=lambda text: tuple(map(ord, text)),
        end_ids=(0,),
        longest_token=1,
    )
    inputs = {"text_input": np.array([["ab"]], object), "max_tokens": np.array([[4]], np.int32), **values}
    tensors = [
        types.SimpleNamespace(name=lambda name=name: name, as_numpy=lambda values=values: values)
        for name, values in inputs.items()
    ]
    return read_text_request(TensorReader(types.SimpleNamespace(inputs=lambda: tensors)), "", LIMITS, tokenizer)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [0, 1, 10])
def test_b053_as_many_drafted_tokens_as_the_engine_takes(asked: int) -> None:
    assert read(num_draft_tokens=np.array([[asked]], np.int32)).speculation.draft_len == asked


@pytest.mark.parametrize("asked", [11, 1000, -1])
def test_b053_more_drafted_tokens_are_refused_with_both_numbers(asked: int) -> None:
    with pytest.raises(BadRequest, match=rf"num_draft_tokens is {asked}, .*max_draft_len 10"):
        read(num_draft_tokens=np.array([[asked]], np.int32))


def float_of(value: float) -> Any:
    return np.array([[value]], np.float32)


def test_b094_a_temperature_that_comes_alone_samples() -> None:
    assert read().speculation.sampling.is_greedy
    for unset in ({}, {"top_p": float_of(0.0)}, {"top_k": np.array([[0]], np.int32)}):
        sampling = read(temperature=float_of(0.7), **unset).speculation.sampling
        assert not sampling.is_greedy
        assert (sampling.top_k, sampling.top_p) == (0, 1.0)
    assert read(temperature=float_of(0.0)).speculation.sampling.is_greedy
    assert read(temperature=float_of(0.7), top_k=np.array([[1]], np.int32)).speculation.sampling.is_greedy
    assert read(temperature=float_of(0.7), top_p=float_of(0.5)).speculation.sampling.top_p == 0.5


@pytest.mark.parametrize("top_p", [100.0, -0.1, np.nan])
def test_b094_top_p_out_of_range_is_refused(top_p: float) -> None:
    with pytest.raises(BadRequest, match=r"top_p is .*, expected 0 \(not set\) to 1"):
        read(top_p=float_of(top_p))


def test_b094_two_requests_without_a_seed_draw_differently() -> None:
    first, second = (read(temperature=float_of(1.0)).speculation.sampling.seed for _ in range(2))
    assert first != second


def test_b115_a_request_that_says_nothing_of_a_stream_does_not_stream() -> None:
    drafts = np.array([[4]], np.int32)
    assert read(num_draft_tokens=drafts).speculation.streams is False
    assert read(num_draft_tokens=drafts, stream=np.array([[True]])).speculation.streams is True


def test_b038_the_end_id_is_the_models_own_unless_the_client_names_one() -> None:
    assert read().speculation.end_ids == (0,)
    assert read(end_id=np.array([[7]], np.int32)).speculation.end_ids == (7,)
    for nobodys in (-1, 200, 1_000_000):
        assert read(end_id=np.array([[nobodys]], np.int32)).speculation.end_ids == ()
    assert read(end_id=np.array([[199]], np.int32)).speculation.end_ids == (199,)


@pytest.mark.parametrize(("folder", "ids"), [("tokenizer", None), ("tokenizer-bos", 1)])
def test_b090_an_empty_prompt_is_a_bos_or_refused(tiny: Any, folder: str, ids: int | None) -> None:
    tokenizer = TextTokenizer(tiny / folder)
    if ids is None:
        with pytest.raises(BadRequest, match="text_input is empty, and this model's tokenizer adds no token"):
            read(tokenizer, text_input=words(""))
    else:
        prompt = read(tokenizer, text_input=words("")).speculation.prompt_ids
        assert prompt == list(tokenizer.encode_word("<|bos|>"))
    assert len(read(tokenizer, text_input=words(" ")).speculation.prompt_ids) == (ids or 0) + 1


@pytest.mark.parametrize("name", ["stop_words", "bad_words"])
def test_b089_words_that_every_call_would_carry_are_bounded(name: str) -> None:
    read(**{name: words("w" * 4096)})
    with pytest.raises(BadRequest, match=f"{name} has 4097 characters in all, expected at most 4096"):
        read(**{name: words("w" * 4000, "x" * 97)})


def words(*texts: str) -> Any:
    return np.array([[text.encode() for text in texts]], object)


def test_b097_every_id_of_a_word_gets_its_weight() -> None:
    weights = np.array([[2.0, -1.5, 0.5]], np.float32)
    request = read(embedding_bias_words=words("a", "bb", "a"), embedding_bias_weights=weights)
    bias = request.speculation.sampling.rules.embedding_bias
    assert bias.dtype == np.float32 and bias.shape == (200,)
    assert {int(i): float(bias[i]) for i in np.flatnonzero(bias)} == {97: 2.5, 98: -3.0}


@pytest.mark.parametrize("weights", [np.array([[0.0, 3.0]], np.float32), None])
def test_a_bias_of_nothing_is_none(weights: Any) -> None:
    given = {} if weights is None else {"embedding_bias_words": words("a", ""), "embedding_bias_weights": weights}
    assert read(**given).speculation.sampling.rules.embedding_bias is None


@pytest.mark.parametrize(
    ("texts", "weights", "reason"),
    [
        (("a", "b"), [1.0], "has 2 words, embedding_bias_weights 1 values"),
        ((), [1.0], "has 0 words, embedding_bias_weights 1 values"),
        (("a",), [], "has 1 words, embedding_bias_weights 0 values"),
        (("a",), [np.inf], "embedding_bias_weights has inf"),
        (("a",), [np.nan], "embedding_bias_weights has nan"),
        (("aé",), [1.0], "'aé' has token 233, which the model does not know"),
        (("a", "a"), [3e38, 3e38], "one token add up to infinity"),
        (("a",) * 257, [1.0] * 257, "257 words, expected at most 256"),
    ],
)
def test_a_bias_that_says_nothing_clear_is_refused(texts: tuple[str, ...], weights: list[float], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        read(embedding_bias_words=words(*texts), embedding_bias_weights=np.array([weights], np.float32))


def test_a_seed_under_both_names_is_refused_in_one_sentence() -> None:
    with pytest.raises(BadRequest, match=r"differ: \[3, 4\]\.$"):
        read(seed=np.array([[3]], np.uint64), random_seed=np.array([[4]], np.uint64))


@pytest.mark.parametrize("drafts", [0, 4])
def test_b109_guided_decoding_is_refused(drafts: int) -> None:
    with pytest.raises(BadRequest, match="guided_decoding_guide_type is not supported"):
        read(guided_decoding_guide_type=words("json"), num_draft_tokens=np.array([[drafts]], np.int32))


def test_several_answers_are_refused_with_the_way_to_get_them() -> None:
    with pytest.raises(BadRequest, match=r"num_return_sequences 2 is not supported.*Send a request for each answer"):
        read(num_return_sequences=np.array([[2]], np.int32))


@pytest.mark.parametrize(
    ("inputs", "fixed"),
    [
        ({}, False),
        ({"num_draft_tokens": np.array([[2]], np.int32)}, True),
        ({"seed": np.array([[5]], np.uint64)}, False),  # greedy: the same answer at any length
        ({"seed": np.array([[5]], np.uint64), "temperature": np.array([[0.7]], np.float32)}, True),
        ({"random_seed": np.array([[5]], np.uint64), "top_k": np.array([[3]], np.int32)}, True),
        ({"temperature": np.array([[0.7]], np.float32)}, False),
    ],
)
def test_who_asks_for_the_same_draws_again_gets_rounds_of_one_length(inputs, fixed):
    assert read(**inputs).speculation.fixed_len is fixed
