"""Stop texts: the same end however the text is cut into pieces."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.openai.stop_text import StopFilter

LETTERS = st.text("ab\n", max_size=30)


def cut(text, borders):
    places = sorted({min(place, len(text)) for place in borders} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


@given(LETTERS, st.lists(st.integers(0, 30)), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3))
def test_pieces_do_not_matter(text, borders, stops):
    watched = StopFilter(stops)
    shown = ""
    for piece in cut(text, borders):
        shown += watched.push(piece)
        assert not any(stop in shown for stop in stops)
    shown += watched.finish()
    found = [text.find(stop) for stop in stops if stop in text]
    assert watched.stopped == bool(found)
    if not found:
        assert shown == text
    elif len(cut(text, borders)) == 1:
        assert shown == text[: min(found)]
    else:  # of two stops that begin at different places the one that is whole first ends the answer
        assert text.startswith(shown) and any(text.startswith(stop, len(shown)) for stop in stops)


def test_what_could_begin_a_stop_waits():
    watched = StopFilter(["\n\nUser:"])
    assert [watched.push(piece) for piece in ("Hi\n", "\nUs", "eful", "\n\nUser: x")] == ["Hi", "", "\n\nUseful", ""]
    assert watched.stopped and watched.finish() == ""


@pytest.mark.parametrize("stops", [(), ("zz",)])
def test_without_a_stop_all_is_shown_at_once(stops):
    watched = StopFilter(stops)
    assert watched.push("abc") == "abc"
    assert watched.finish() == ""
