"""Streamed text is the text of the whole answer, whatever the bytes, the cuts between rounds and the stop texts."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from trt_spec.serve.answer import Answer
from trt_spec.serve.tokens import BROKEN, MAX_UNFINISHED, TextStream, TextTokenizer

SPECIAL, THINK = "<|end|>", "<think>"


def byte_level() -> Tokenizer:
    """A tokenizer of single bytes, as Llama 3's and Qwen's are at heart."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that stand for themselves in the vocabulary
    others = [byte for byte in range(256) if byte not in plain]
    names = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab={names[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_fallback() -> Tokenizer:
    """A tokenizer with a token for each byte beside words, as Llama 2's and Mistral's."""
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {name: i for i, name in enumerate([*names, "▁", "a", "b", "▁a", "▁b", "é", "안"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a"), ("▁", "b")], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


@pytest.fixture(scope="module", params=[byte_level, byte_fallback])
def tokenizer(request, tmp_path_factory):
    """Tokenizers of both ways to spell what a vocabulary lacks; ids 0 to 255 are the bytes."""
    tokenizer = request.param()
    tokenizer.add_special_tokens([AddedToken(SPECIAL, special=True)])
    tokenizer.add_tokens([AddedToken(THINK, special=False)])
    folder = tmp_path_factory.mktemp(request.param.__name__)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": SPECIAL}))
    return TextTokenizer(folder)


def stream_of(tokenizer, ids, cuts=()):
    """The pieces of a stream that gets ``ids`` cut at ``cuts``, what ``finish`` gives being the last."""
    stream, borders = TextStream(tokenizer), sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    pieces = [stream.push(ids[start:end]) for start, end in itertools.pairwise(borders)]
    return [*pieces, stream.finish()]


@pytest.mark.parametrize("character", ["é", "안", "😀", "👩‍👩‍👧‍👦", "é", "한", "\N{ZERO WIDTH SPACE}"])
def test_b086_a_character_of_many_tokens_comes_whole(tokenizer, character):
    for before in ("", "a", "a "):
        spelled = [*tokenizer.encode(before), *character.encode()]
        pieces = stream_of(tokenizer, spelled, range(len(spelled)))
        assert "".join(pieces) == before + character
        assert BROKEN not in "".join(pieces)
        assert pieces[-1] == ""


def test_b086_four_bytes_give_nothing_three_times(tokenizer):
    stream = TextStream(tokenizer)
    assert [stream.push([byte]) for byte in "😀".encode()] == ["", "", "", "😀"]
    assert stream.push([0xC2]) == ""
    assert [stream.finish(), stream.finish()] == [BROKEN, ""]


def test_b086_broken_bytes_are_held_for_a_few_tokens_only(tokenizer):
    stream = TextStream(tokenizer)
    shown = ""
    for count in range(1, 50):
        shown += stream.push([0x80])
        assert shown == BROKEN * max(0, count - MAX_UNFINISHED)
    assert shown + stream.push(tokenizer.encode_word("ab")[-1:]) == BROKEN * 49 + "b"
    assert stream.finish() == ""


@pytest.mark.parametrize("text", ["안녕하세요 😀", "aé b", "a  b", " a"])
def test_b086_text_survives_whatever_stood_before_it(tokenizer, text):
    spelled = list(text.encode())
    for broken in ([0xFF], [0x80, 0x80], [0xE3, 0x81, 0x82, 0x80]):
        said = "".join(stream_of(tokenizer, [*broken, *tokenizer.encode_word("a"), *spelled]))
        assert said.endswith("a" + text)
        assert said.count(BROKEN) == sum(byte in (0xFF, 0x80) for byte in broken)


def test_special_tokens_are_hidden_and_added_ones_are_not(tokenizer):
    special, think = tokenizer.encode_word(SPECIAL)[-1], tokenizer.encode_word(THINK)[-1]
    a, *_ = tokenizer.encode_word("a")
    emoji = list("😀".encode())
    spelled = [a, special, special, *emoji[:2], special, *emoji[2:], think, special]
    pieces = stream_of(tokenizer, spelled, range(len(spelled)))
    assert "".join(pieces) == f"a😀{THINK}" == tokenizer.decode(spelled)


random_ids = st.lists(st.integers(0, 250), max_size=40)
random_cuts = st.lists(st.integers(1, 40), max_size=12)


@settings(deadline=None, max_examples=300)
@given(said=random_ids, cuts=random_cuts)
def test_b086_pieces_add_up_to_the_same_text_however_cut(tokenizer, said, cuts):
    whole = "".join(stream_of(tokenizer, said))
    assert "".join(stream_of(tokenizer, said, cuts)) == whole
    if tokenizer.encode("é") == [*"é".encode()]:  # other decoders have no text that grows
        assert whole == tokenizer.decode(said)


WORDS = st.lists(st.sampled_from([*"ab é안😀\n", THINK]), max_size=24).map("".join)  # one token is a word
STOPS = st.one_of(st.text(st.sampled_from("ab é안😀"), min_size=1, max_size=3), st.sampled_from(["<t", "k>", "nk>a"]))


@settings(deadline=None, max_examples=300)
@given(text=WORDS, stops=st.lists(STOPS, max_size=3), cuts=random_cuts)
def test_streamed_answers_are_the_unary_ones_up_to_the_first_stop_text(tokenizer, text, stops, cuts):
    said = tokenizer.encode(text)
    full = tokenizer.decode(said)
    ends = [full.index(stop) + len(stop) for stop in stops if stop in full]
    expected = full[: min(ends)] if ends else full

    def answer(borders):
        answered = Answer(tokenizer, stops)
        pieces = []
        for start, end in itertools.pairwise(borders):
            if not answered.stopped:
                pieces.append(answered.add(said[start:end]))
        return "".join([*pieces, answered.finish(cut=False)]), answered

    unread = Answer(tokenizer, stops, streams=False)
    pieces = [unread.add(said), unread.finish(cut=False)]
    assert ("".join(pieces), unread.text) == (expected, expected)
    unary, whole = answer([0, len(said)])
    streamed, parts = answer(sorted({0, len(said), *(cut for cut in cuts if cut < len(said))}))
    assert streamed == unary == expected == parts.text
    assert (whole.ids, whole.stopped) == (parts.ids, parts.stopped)
    assert whole.stopped == bool(ends)


def test_nothing_behind_a_stop_text_is_ever_sent(tokenizer):
    said = list(b"ab STOP, and more")
    for step in range(1, 9):  # the stop text begins in what was sent before, in every way
        answer = Answer(tokenizer, ["STOP"])
        sent = ""
        for start in range(0, len(said), step):
            if not answer.stopped:
                sent += answer.add(said[start : start + step])
                assert "ab STOP".startswith(sent)
        assert sent + answer.finish(cut=False) == "ab STOP"
