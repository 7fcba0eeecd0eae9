import json

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.vocabulary import check_same_vocabulary, load_vocabulary


def test_the_same_vocabulary_passes(tiny):
    vocabulary = load_vocabulary(tiny / "tokenizer")
    assert len(vocabulary) == 320
    assert vocabulary[314] == "<|bos|>"
    check_same_vocabulary(vocabulary, load_vocabulary(tiny / "tokenizer-bos"))


def test_the_first_token_that_differs_is_named(tiny):
    with pytest.raises(SpecError, match=r"token 312 is 'ar' in the target and 'qx' in the draft"):
        check_same_vocabulary(load_vocabulary(tiny / "tokenizer"), load_vocabulary(tiny / "pair-other-vocab"))


@pytest.mark.parametrize(("target", "draft"), [({0: "a", 1: "b"}, {0: "a"}), ({0: "a"}, {0: "a", 1: "b"})])
def test_a_token_that_one_side_lacks_is_named(target, draft):
    with pytest.raises(SpecError, match=r"token 1 is .*missing"):
        check_same_vocabulary(target, draft)


def test_unigram_vocabularies_are_lists(tmp_path):
    content = {"model": {"vocab": [["<unk>", 0.0], ["a", -1.0]]}, "added_tokens": [{"id": 2, "content": "<s>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load_vocabulary(tmp_path) == {0: "<unk>", 1: "a", 2: "<s>"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": {"vocab": 3}}', '{"model": {"vocab": {"a": null}}}'])
def test_a_damaged_tokenizer_is_refused(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(SpecError, match=r"tokenizer\.json"):
        load_vocabulary(tmp_path)


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"no tokenizer\.json"):
        load_vocabulary(tmp_path)
