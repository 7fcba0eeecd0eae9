import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.stopping import find_stop, pack_stop_words, unpack_stop_words

words = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5).map(tuple)


@given(words)
def test_packing_and_unpacking_are_inverse(stop_words):
    assert unpack_stop_words(pack_stop_words(stop_words)) == stop_words


@pytest.mark.parametrize("packed", [np.zeros((2, 0)), [[0, 0], [-1, -1]]])
def test_no_words_are_no_words(packed):
    assert unpack_stop_words(np.array(packed, np.int32)) == ()


def test_the_layout_is_nvidias():
    assert pack_stop_words(((5,), (7, 8))).tolist() == [[5, 7, 8], [1, 3, -1]]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_b037_any_of_several_stop_words_ends_the_answer(count):
    words = ((9,), (7, 8), (3, 4, 5))[:count]
    packed = unpack_stop_words(pack_stop_words(words)) if words else ()
    for which, (said, end) in enumerate((([1, 2, 9, 1], 3), ([1, 7, 8, 1], 3), ([1, 3, 4, 5, 1], 4)), 1):
        assert find_stop(said, 0, packed) == (end if which <= count else None)


@pytest.mark.parametrize("packed", [[1, 2], [[1, 2]], [[1, 2], [2, 1]], [[1, 2], [3, -1]]])
def test_a_malformed_list_is_refused(packed):
    with pytest.raises(ValueError, match="expected"):
        unpack_stop_words(np.array(packed, np.int32))


@pytest.mark.parametrize(
    ("tokens", "start", "end"),
    [
        ([1, 2, 7, 8, 3], 2, 4),
        ([1, 7, 8, 3], 2, 3),  # begins before start: the word spans two rounds
        ([7, 8, 1], 2, None),  # completed before start: not this round's
        ([1, 7, 3, 5, 7, 8], 1, 4),  # the earlier end wins
        ([], 0, None),
    ],
)
def test_a_stop_word_counts_where_it_is_completed(tokens, start, end):
    assert find_stop(tokens, start, ((7, 8), (5,))) == end
