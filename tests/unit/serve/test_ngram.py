"""N-gram lookup against a plain search of the whole sequence."""

from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.ngram import LONGEST_NGRAM, SHORTEST_NGRAM, NgramIndex


def searched(ids, length):
    """The continuation of the latest earlier occurrence of the longest n-gram at the end, repeating at the end."""
    for size in range(LONGEST_NGRAM, SHORTEST_NGRAM - 1, -1):
        for start in range(len(ids) - size - 1, -1, -1):
            if len(ids) > size and ids[start : start + size] == ids[-size:]:
                found = list(ids)
                for offset in range(length):
                    found.append(found[start + size + offset])
                return found[len(ids) :]
    return []


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 9), st.integers(1, 5))
def test_a_proposal_is_what_followed_the_latest_longest_match(ids, length, chunk):
    index = NgramIndex()
    for start in range(0, len(ids), chunk):
        index.extend(ids[start : start + chunk])
    assert index.propose(length) == searched(ids, length)
    assert index.has_match == bool(searched(ids, 1))


def test_a_longer_match_wins_over_a_later_one():
    index = NgramIndex()
    index.extend([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3])
    assert index.propose(2) == [7, 9]


def test_a_repeating_end_goes_on_repeating():
    index = NgramIndex()
    index.extend([9, 5, 6, 5, 6])
    assert index.propose(5) == [5, 6, 5, 6, 5]
