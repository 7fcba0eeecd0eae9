"""Requests of a load: exact lengths, seeds, categories."""

from __future__ import annotations

import pytest

from trt_spec.errors import SpecError
from trt_spec.verify.tokenizer import load_tokenizer
from trt_spec.verify.workload.lengths import draw_tokens, fit_text
from trt_spec.verify.workload.prompts import Prompt, load_prompts
from trt_spec.verify.workload.requests import Shape, build_requests


@pytest.fixture(params=["tokenizer", "tokenizer-bos"])
def tokenizer(request, tiny):
    return load_tokenizer(tiny / request.param)


@pytest.mark.parametrize("tokens", [16, 57, 300, 1000])
def test_prompts_have_exactly_so_many_tokens(tokenizer, tokens):
    prompts = load_prompts(whole=True)
    requests = build_requests(prompts, 12, Shape(prompt_tokens=(tokens, tokens)), tokenizer)
    assert [len(tokenizer.encode(request.text)) for request in requests] == [tokens] * 12
    assert len({request.text for request in requests}) == 12


def test_lengths_vary_within_their_range_and_repeat_with_the_seed(tokenizer):
    prompts = load_prompts(whole=True)

    def build(seed):
        return build_requests(prompts, 40, Shape((20, 60), (5, 9), exact_output=True, seed=seed), tokenizer)

    first = build(1)
    assert first == build(1) != build(2)
    lengths = {len(tokenizer.encode(request.text)) for request in first}
    assert min(lengths) >= 20 and max(lengths) <= 60 and len(lengths) > 10
    assert {request.max_tokens for request in first} == {5, 6, 7, 8, 9}
    assert all(request.min_tokens == request.max_tokens for request in first)
    assert len({request.seed for request in first}) == 40


def test_the_chat_template_counts(tokenizer_folder):
    tokenizer = load_tokenizer(tokenizer_folder)
    (request,) = build_requests([Prompt("a", "chat", "hello")], 1, Shape(prompt_tokens=(60, 60)), tokenizer)
    assert request.text.startswith("<s>user: hello") and request.text.endswith("assistant:")
    assert len(tokenizer.encode(request.text)) == 60
    with pytest.raises(SpecError, match="A prompt of 5 tokens is impossible: the chat template"):
        build_requests([Prompt("a", "chat", "hello")], 1, Shape(prompt_tokens=(5, 5)), tokenizer)


def test_a_file_goes_before_the_shape(tokenizer):
    prompts = [Prompt("a", "x", "one", output_tokens=7, timestamp_s=0.0), Prompt("b", "x", "", input_tokens=33,
               timestamp_s=1.0)]  # fmt: skip
    first, second = build_requests(prompts, 2, Shape(output_tokens=(3, 3)), tokenizer, num_draft_tokens=4)
    assert (first.text, first.max_tokens, first.num_draft_tokens) == (tokenizer.render_prompt("one"), 7, 4)
    assert len(tokenizer.encode(second.text)) == 33 and second.max_tokens == 3


def test_conversations_go_through_the_template(tokenizer_folder):
    turns = (("system", "be brief"), ("user", "hi"))
    (request,) = build_requests([Prompt("a", "x", "hi", turns)], 1, Shape(), load_tokenizer(tokenizer_folder))
    assert request.text == "<s>system: be brief\n<s>user: hi\nassistant:"


def test_categories_are_selected_and_wrong_ones_named(tokenizer):
    prompts = load_prompts(whole=True)
    requests = build_requests(prompts, 30, Shape(kinds=("korean",)), tokenizer)
    assert {request.kind for request in requests} == {"korean"}
    with pytest.raises(SpecError, match=r"No prompt is of the category 'poetry' .*chat, code"):
        build_requests(prompts, 1, Shape(kinds=("poetry",)), tokenizer)


def test_lengths_without_a_tokenizer_are_refused():
    with pytest.raises(SpecError, match="only the target's tokenizer can count"):
        build_requests(load_prompts(), 1, Shape(prompt_tokens=(10, 10)), None)


def test_texts_that_say_too_little_repeat():
    assert len(fit_text(["a b "], 500, len, 0)) == 500


@pytest.mark.parametrize("bounds", [(0, 5), (6, 5)])
def test_ranges_that_are_none(bounds):
    with pytest.raises(SpecError, match="no range of lengths"):
        draw_tokens(*bounds, 1, 0)
