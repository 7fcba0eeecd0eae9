import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.answer import Answer
from trt_spec.serve.tokens import BROKEN, TextStream, TextTokenizer

TEXTS = ("안녕하세요, 세계!", "😀👩‍👩‍👧‍👦 emoji", "plain", "१२३", "naïve café\n\ttab")


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return TextTokenizer(tiny / "tokenizer")


@pytest.mark.parametrize("text", TEXTS)
def test_streaming_never_splits_a_character(tokenizer, text):
    stream = TextStream(tokenizer)
    pieces = [stream.push([token]) for token in tokenizer.encode(text)]
    assert not any(BROKEN in piece for piece in pieces)
    assert "".join(pieces) + stream.finish() == text


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 312), max_size=40), cuts=st.lists(st.integers(1, 5), max_size=40))
def test_pieces_add_up_to_the_whole_text_whatever_the_bytes(tiny, ids, cuts):
    tokenizer = TextTokenizer(tiny / "tokenizer")
    stream, text, start = TextStream(tokenizer), "", 0
    for cut in [*cuts, len(ids)]:
        text += stream.push(ids[start : start + cut])
        start += cut
    assert text + stream.finish() == tokenizer.decode(ids)


def test_bytes_that_never_become_a_character_show_once_at_the_end(tokenizer):
    lead, _ = tokenizer.encode("é")  # the fixture spells it with two tokens
    stream = TextStream(tokenizer)
    assert stream.push([lead]) == ""
    assert stream.finish() == BROKEN
    assert stream.finish() == ""


def test_settings_left_over_from_training_neither_cut_nor_fill(tiny, tmp_path):
    shutil.copytree(tiny / "tokenizer", tmp_path, dirs_exist_ok=True)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 313,
        "pad_type_id": 0,
        "pad_token": "<|pad|>",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    text = "hello there, this is a prompt"
    assert TextTokenizer(tmp_path).encode(text) == TextTokenizer(tiny / "tokenizer").encode(text)


@pytest.mark.parametrize("prompt", ["hello", "<|bos|>hello"])
def test_b035_a_prompt_gets_exactly_one_bos(tiny, prompt):
    tokenizer = TextTokenizer(tiny / "tokenizer-bos")
    bos = tokenizer.encode_word("<|bos|>")[0]
    ids = tokenizer.encode(prompt)
    assert ids[0] == bos
    assert bos not in ids[1:]
    assert bos not in tokenizer.encode_word("hello")


@pytest.mark.parametrize(("eos", "expected"), [(7, (7,)), ([7, 8], (7, 8)), (None, (1,))])
def test_end_ids_come_from_the_generation_config(tiny, tmp_path, eos, expected):
    shutil.copytree(tiny / "tokenizer", tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 1}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    assert TextTokenizer(tmp_path).end_ids == expected


def test_an_answer_ends_right_behind_a_stop_text(tokenizer):
    answer = Answer(tokenizer, ["STOP", "never"])
    deltas = [answer.add([token]) for token in tokenizer.encode("go on STOPPING now")]
    assert answer.stopped
    assert "".join(deltas) == answer.text == "go on STOP"
    assert tokenizer.decode(answer.ids).startswith("go on STOP")
    assert answer.finish(cut=False) == ""
    assert len(answer.ids) < len(tokenizer.encode("go on STOPPING now"))


@pytest.mark.parametrize(("cut", "tail"), [(True, ""), (False, BROKEN)])
def test_a_character_that_the_length_limit_cut_is_left_out(tokenizer, cut, tail):
    lead, _ = tokenizer.encode("é")
    answer = Answer(tokenizer, [])
    assert answer.add([*tokenizer.encode("ok"), lead]) == "ok"
    assert answer.finish(cut=cut) == tail


@pytest.mark.parametrize(("cut", "text"), [(True, "ok"), (False, f"ok{BROKEN}")])
def test_what_nobody_reads_along_is_decoded_at_the_end(tokenizer, cut, text):
    lead, _ = tokenizer.encode("é")
    answer = Answer(tokenizer, [], streams=False)
    assert [answer.add([token]) for token in (*tokenizer.encode("ok"), lead)] == ["", "", ""]
    assert answer.ids == [*tokenizer.encode("ok"), lead]
    assert answer.finish(cut=cut) == answer.text == text


def test_a_stop_text_already_passed_does_not_count_again(tokenizer):
    answer = Answer(tokenizer, ["ab"])
    assert answer.add(tokenizer.encode("xxa")) == "xxa"
    assert not answer.stopped
    assert answer.add(tokenizer.encode("bcc")) == "b"
    assert answer.stopped
