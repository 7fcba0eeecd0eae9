"""Which row a request gets, and what it takes over."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.local_backend.kv_rows import KvRows

TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=12)  # two tokens: common beginnings abound


@settings(max_examples=200)
@given(st.integers(1, 4), st.lists(st.tuples(TEXTS, st.integers(0, 12), st.booleans()), max_size=25), st.randoms())
def test_a_row_has_one_request_and_what_is_taken_over_is_there(count, requests, random):
    rows = KvRows(count, 64)
    running = []
    for ids, answer, keeps in requests:
        if len(running) == count or (running and random.random() < 0.5):
            rows.release(running.pop(random.randrange(len(running))), keep=keeps)
        before = {row.index: row.ids.copy() for row in rows.rows}
        placement = rows.acquire(ids)
        row, cached, source = placement.row, placement.cached_tokens, placement.copy_from
        assert row not in running and 0 <= cached < len(ids)
        holder = row if source is None else source
        np.testing.assert_array_equal(before[holder.index][:cached], ids[:cached])
        np.testing.assert_array_equal(row.ids, ids[:cached])
        for other in running:
            np.testing.assert_array_equal(other.ids, before[other.index])
        row.write(cached, ids[cached:])
        row.write(len(ids), [random.randrange(2) for _ in range(answer)])
        running.append(row)


def test_no_row_is_given_while_all_run():
    rows = KvRows(2, 8)
    first = rows.acquire([1, 2]).row
    rows.acquire([1, 2])
    assert rows.is_full
    with pytest.raises(ValueError, match="every row is running"):
        rows.acquire([1, 2])
    rows.release(first)
    assert rows.acquire([3]).row is first


def test_a_running_sequence_lends_its_beginning():
    rows = KvRows(2, 8)
    first = rows.acquire([1, 2, 3]).row
    first.write(0, [1, 2, 3])
    placement = rows.acquire([1, 2, 4])
    assert (placement.row.index, placement.cached_tokens, placement.copy_from) == (1, 2, first)


def test_a_cancelled_prompt_goes_on_where_it_stopped():
    rows = KvRows(2, 8)
    row = rows.acquire([1, 2, 3, 4, 5]).row
    row.write(0, [1, 2, 3])
    rows.release(row)
    placement = rows.acquire([1, 2, 3, 4, 5])
    assert (placement.row, placement.cached_tokens, placement.copy_from) == (row, 3, None)


def test_a_text_that_was_asked_before_grows_in_a_row_of_its_own():
    """Its calls resend what the old row holds too, one token more: it neither copies again nor drives others out."""
    rows = KvRows(3, 16)
    text = list(range(10))
    old = rows.acquire(text).row
    old.write(0, text)
    rows.release(old)
    other = rows.acquire([20, 21]).row
    other.write(0, [20, 21])
    rows.release(other)
    own = None
    for length in range(4, 9):
        placement = rows.acquire(text[:length])
        assert (own is None) == (placement.copy_from is old)
        assert own is None or placement.row is own
        own = placement.row
        own.write(length - 1, text[length - 1 : length])
        rows.release(own)
    assert other.ids.tolist() == [20, 21]


def test_what_failed_is_not_taken_over():
    rows = KvRows(1, 8)
    row = rows.acquire([1, 2, 3]).row
    row.write(0, [1, 2, 3])
    rows.release(row, keep=False)
    assert rows.acquire([1, 2, 3]).cached_tokens == 0
