"""Greedy answers with drafts are the target's own, token for token, alone and among seven others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.verify.client import TritonClient
from trt_spec.verify.text_request import GREEDY, Controls

END_IDS = (315, 316)
STARTS = {
    "code": ("def f(x):", "for i in", "#include <", "SELECT * ", "{}[]();"),
    "korean": ("안녕하", "대한민국", "왜요?", "책 한"),
    "emoji": ("😀 ", "👩‍👩‍👧", "🇰🇷!", "é¨"),
    "words": ("hello", "The", "one two", "1 + 1 =", "naïve\n"),
    "long": ("x" * 30, "the end of the " * 2, "0123456789" * 3, "  \t" * 8),
}


class Case(NamedTuple):
    kind: str
    text: str
    max_tokens: int
    controls: Controls = GREEDY


PLAIN = [
    Case(kind, f"{start} {i}", 1 + (7 * i + len(start)) % 16)
    for i in range(10)
    for kind, starts in STARTS.items()
    for start in starts
]


def with_controls(said: dict[str, str]) -> list[Case]:
    """Cases whose answers stop early, at up to three words cut from what the target says, or go on past an end."""
    cases = []
    for i, case in enumerate(PLAIN[:32]):
        text = said[case.text]
        words = [word for word in (text[3:5], text[6:7], text[9:12]) if word]
        cases.append(case._replace(kind="stop words", max_tokens=28, controls=Controls(stop_words=words[: 1 + i % 3])))
        if i % 3 == 0:
            cases.append(case._replace(kind="minimum", max_tokens=28, controls=Controls(min_tokens=1 + i % 28)))
    return cases


@pytest.mark.slow
def test_b037_two_hundred_and_fifty_answers_equal_the_targets_own(served, tiny):
    tokenizer = TextTokenizer(tiny / "tokenizer")
    with TritonClient(served.grpc_url, deadline_s=60) as client, ThreadPoolExecutor(8) as pool:

        def ask(case, drafts=None):
            return client.infer(case.text, case.max_tokens, drafts, label=case.text, controls=case.controls)

        def ask_alone(case):
            return ask(case, 0)

        def ask_engine(case):
            ids = tokenizer.encode(case.text)
            new = client.generate_from_ids(TARGET_MODEL, ids, case.max_tokens, END_IDS, label=case.text)
            return new[:-1] if new and new[-1] in END_IDS else new  # the second end id is a stop word to the engine

        said = {case.text: ask_alone(case._replace(max_tokens=28)).text for case in PLAIN[:32]}
        cases = PLAIN + with_controls(said)
        assert len(cases) >= 250
        alone = list(pool.map(ask_alone, cases))
        together = list(pool.map(ask, cases))
        one_by_one = [ask(case) for case in cases]
        direct = list(pool.map(ask_engine, PLAIN))
    for answers in (together, one_by_one):
        wrong = [case for case, a, b in zip(cases, answers, alone, strict=True) if a.output_ids != b.output_ids]
        assert wrong == []
        assert [answer.text for answer in answers] == [answer.text for answer in alone]
        assert sum(answer.accepted for answer in answers) > 0.2 * sum(answer.drafted for answer in answers) > 0
    assert direct == [answer.output_ids for answer in alone[: len(PLAIN)]]
    for case, answer in zip(cases, alone, strict=True):
        if case.kind == "minimum":
            assert len(answer.output_ids) >= case.controls.min_tokens
        if case.kind == "stop words":
            assert answer.text.endswith(tuple(case.controls.words()))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_b037_every_one_of_several_stop_words_stops(served, ask, stream, count):
    whole = ask("hello", num_draft_tokens=0)["text_output"]
    words = [whole[9:12], whole[6:8], whole[3:5]][:count]
    ends = [whole.index(word) + len(word) for word in words]
    expected = whole[: min(ends)] if ends else whole
    for drafts in range(5):
        assert ask("hello", stop_words=words, num_draft_tokens=drafts)["text_output"] == expected
    assert "".join(event["text_output"] for event in stream("hello", stop_words=words)) == expected


def test_b042_naming_the_end_id_changes_nothing(ask):
    for text in ("hello", "안녕"):
        free = ask(text)["text_output"]
        for end_id in END_IDS:
            named = ask(text, end_id=end_id)["text_output"]
            assert free.startswith(named) or named.startswith(free)
