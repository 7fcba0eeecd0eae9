from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.acceptance import accept_tokens, count_accepted

tokens = st.lists(st.integers(0, 5), max_size=8)


@given(draft=tokens, target=tokens.filter(bool))
def test_what_is_kept_is_what_the_target_alone_would_say(draft, target):
    """``target`` is the target's own continuation: what is kept is the part that agrees, and one token more."""
    picks = [*target, *[9] * len(draft)]
    kept = accept_tokens(draft, lambda i: picks[i])
    agreed = count_accepted(draft, picks)
    assert kept == picks[: agreed + 1]
    assert count_accepted(draft, kept) == agreed


def test_the_target_is_asked_only_as_far_as_it_agrees():
    asked = []

    def choose(i):
        asked.append(i)
        return (7, 8, 1, 2)[i]

    assert accept_tokens([7, 8, 9, 3], choose) == [7, 8, 1]
    assert asked == [0, 1, 2]


def test_without_drafts_the_target_says_one_token():
    assert accept_tokens([], lambda i: 4) == [4]
