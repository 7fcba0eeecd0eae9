from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.ngram import MAX_PATTERN_TOKENS, MIN_PATTERN_TOKENS, NgramLookup

sequences = st.lists(st.integers(0, 3), max_size=30)


def search(ids, max_tokens):
    """The same by looking through the whole sequence."""
    for size in range(min(MAX_PATTERN_TOKENS, len(ids)), MIN_PATTERN_TOKENS - 1, -1):
        for start in range(len(ids) - size - 1, -1, -1):
            if ids[start : start + size] == ids[-size:]:
                return ids[start + size : start + size + max_tokens]
    return []


@given(prompt=sequences, pieces=st.lists(sequences, max_size=4), max_tokens=st.integers(1, 6))
def test_the_index_finds_what_a_search_finds(prompt, pieces, max_tokens):
    lookup, ids = NgramLookup(prompt), list(prompt)
    assert lookup.propose(max_tokens) == search(ids, max_tokens)
    for piece in pieces:
        lookup.extend(piece)
        ids += piece
        assert lookup.propose(max_tokens) == search(ids, max_tokens)


def test_a_repeated_sentence_is_drafted_from_its_first_place():
    sentence = [5, 6, 7, 8, 9, 10]
    assert NgramLookup([*sentence, 1, 2, 5, 6]).propose(4) == [7, 8, 9, 10]


def test_nothing_repeated_drafts_nothing():
    assert NgramLookup(range(50)).propose(4) == []
    assert NgramLookup([3, 3]).propose(4) == []
