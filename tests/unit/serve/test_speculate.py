"""The loop on engines made of plain functions: whatever the draft proposes, the answer is the target's own."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.acceptance import accept_tokens
from trt_spec.serve.engine_calls import Draft, TargetTokens
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.rounds import RoundCounts
from trt_spec.serve.sampling import Sampling
from trt_spec.serve.speculate import speculate
from trt_spec.serve.stopping import find_stop
from trt_spec.serve.token_answer import SpeculationRequest

END = 0


def log_prob_of(token):
    return -0.5 * token - 0.25


class FunctionEngines:
    """Engines whose next token is ``target(ids)`` or ``draft(ids)``; they stop and count as the C++ engine does."""

    def __init__(self, target, draft):
        self._functions = {"target": target, "draft": draft}
        self.calls = []

    async def target(self, call):
        ids = self._run("target", call)
        return TargetTokens(ids, [log_prob_of(token) for token in ids] if call.wants_log_probs else ())

    async def draft(self, call):
        return Draft(self._run("draft", call))

    def begin_draft(self, call):
        return asyncio.ensure_future(self.draft(call))

    def _run(self, role, call):
        self.calls.append((role, call))
        next_token, ids, start = self._functions[role], call.ids.tolist(), len(call.ids)
        steps = 1 if call.draft_ids else call.max_new_tokens
        for _ in range(steps):
            draft = list(call.draft_ids)
            for token in accept_tokens(draft, lambda i, ids=ids, draft=draft: next_token([*ids, *draft[:i]])):
                if token == call.end_id or len(ids) - start == call.max_new_tokens:
                    return ids[start:]
                ids.append(token)
            stop = find_stop(ids, start, call.stop_words)
            if stop is not None:
                return ids[start:stop]
        return ids[start:]


def answer(engines, **settings):
    counts, rounds = RoundCounts(), []

    async def collect():
        async for new_ids in speculate(engines, SpeculationRequest(**settings), counts):
            rounds.append(new_ids)

    asyncio.run(collect())
    return [token for new_ids in rounds for token in new_ids], counts, rounds


def hashed(salt, vocab):
    return lambda ids: hash((salt, *ids[-3:])) % vocab


@settings(deadline=None, max_examples=200)
@given(
    salts=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    vocab=st.integers(2, 12),
    agree=st.integers(0, 4),
    prompt=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    max_tokens=st.integers(1, 30),
    draft_len=st.integers(1, 7),
    end_ids=st.sampled_from([(), (0,), (0, 1), (3,)]),
    stop_words=st.sampled_from([(), ((2,),), ((1, 2), (3, 3)), ((4, 4, 4),)]),
)
def test_the_answer_is_the_targets_own(salts, vocab, agree, prompt, max_tokens, draft_len, end_ids, stop_words):
    target = hashed(salts[0], vocab)

    def draft(ids):
        return target(ids) if len(ids) % 5 < agree else hashed(salts[1], vocab)(ids)

    common = {"prompt_ids": prompt, "max_tokens": max_tokens, "end_ids": end_ids, "stop_words": stop_words}
    alone, counts, _ = answer(FunctionEngines(target, draft), draft_len=0, **common)
    assert counts == RoundCounts()
    speculative, counts, rounds = answer(FunctionEngines(target, draft), draft_len=draft_len, **common)
    assert speculative == alone
    assert not set(speculative) & set(end_ids)
    assert len(counts.drafted) == len(rounds)
    for drafted, accepted, new_ids in zip(counts.drafted, counts.accepted, rounds, strict=True):
        assert 0 <= accepted <= drafted <= draft_len
        assert len(new_ids) <= accepted + 1
    streamed, _, _ = answer(FunctionEngines(target, draft), draft_len=0, streams=True, **common)
    assert streamed == alone


def test_a_perfect_draft_makes_every_round_full():
    engines = FunctionEngines(lambda ids: len(ids), lambda ids: len(ids))
    ids, counts, _ = answer(engines, prompt_ids=[1], max_tokens=12, draft_len=3)
    assert ids == list(range(1, 13))
    assert (counts.drafted, counts.accepted) == ([3, 3, 3], [3, 3, 3])
    assert [role for role, _ in engines.calls] == ["draft", "target"] * 3


def test_a_hopeless_draft_costs_rounds_but_no_token():
    engines = FunctionEngines(lambda ids: 1, lambda ids: 2)
    ids, counts, _ = answer(engines, prompt_ids=[1], max_tokens=5, draft_len=3)
    assert ids == [1] * 5
    assert counts.accepted == [0] * 5
    assert counts.drafted == [3, 3, 2, 1, 0]  # never more than could still be used


class DeafEngines(FunctionEngines):
    """Engines that run on behind stop words, as one may that accepts a stop word and more in one step."""

    def _run(self, role, call):
        return super()._run(role, call._replace(stop_words=()))


@pytest.mark.parametrize(("end_ids", "said"), [((), [1, 2, 3, 4]), ((END, 4), [1, 2, 3])])
def test_what_comes_behind_a_stop_is_cut_off(end_ids, said):
    engines = DeafEngines(lambda ids: len(ids), lambda ids: len(ids))
    stop_words = () if end_ids else ((3, 4),)
    found, counts, rounds = answer(
        engines,
        prompt_ids=[9],
        max_tokens=20,
        draft_len=6,
        end_ids=end_ids,
        stop_words=stop_words,
        wants_log_probs=True,
    )
    assert found == said
    assert counts.log_probs == [log_prob_of(token) for token in said]
    assert len(rounds) == 1


def test_a_silent_draft_leaves_the_target_alone():
    engines = FunctionEngines(lambda ids: 1, lambda ids: END)
    ids, counts, _ = answer(engines, prompt_ids=[1], max_tokens=3, draft_len=4, end_ids=(END,))
    assert ids == [1, 1, 1]
    assert counts.drafted == [0, 0, 0]


def test_a_stream_begins_with_a_token_of_the_target_alone():
    engines = FunctionEngines(lambda ids: len(ids), lambda ids: len(ids))
    ids, counts, rounds = answer(engines, prompt_ids=[1], max_tokens=6, draft_len=2, streams=True)
    assert ids == list(range(1, 7))
    assert [len(new_ids) for new_ids in rounds] == [1, 3, 2]
    assert counts.drafted == [0, 2, 1]
    assert [role for role, _ in engines.calls][:2] == ["target", "draft"]


def test_every_call_of_a_sampling_request_has_a_seed_of_its_own():
    sampling = Sampling(top_p=0.9, seed=5)
    settings_ = {"prompt_ids": [1], "max_tokens": 8, "draft_len": 2, "sampling": sampling}
    runs = []
    for _ in range(2):
        engines = FunctionEngines(lambda ids: 1, lambda ids: 2)
        answer(engines, **settings_)
        runs.append([call.sampling.seed for _, call in engines.calls])
    assert len(set(runs[0])) == len(runs[0]) > 8
    assert runs[0] == runs[1]
    assert all(call.sampling.top_p == 0.9 for _, call in engines.calls)


def test_a_long_plain_answer_comes_in_calls_that_can_be_given_up():
    engines = FunctionEngines(lambda ids: len(ids), lambda ids: 0)
    ids, _, rounds = answer(engines, prompt_ids=[1], max_tokens=150, draft_len=0)
    assert ids == list(range(1, 151))
    assert [len(new_ids) for new_ids in rounds] == [32, 32, 32, 32, 22]


class RuledEngines(FunctionEngines):
    """Engines that, as the C++ one, keep to minimum length and bad words; the next best token is the next number."""

    def __init__(self, target, draft, vocab):
        super().__init__(target, draft)
        self._vocab = vocab

    def _run(self, role, call):
        self.calls.append((role, call))
        plain, rules, start = self._functions[role], call.sampling.rules, len(call.ids)

        def next_token(ids):
            banned = {word[-1] for word in rules.bad_words if list(ids[len(ids) - len(word) + 1 :]) == list(word[:-1])}
            if len(ids) - start < rules.min_tokens:
                banned.add(call.end_id)
            return allowed(plain(ids), banned, self._vocab)

        ids = call.ids.tolist()
        for _ in range(1 if call.draft_ids else call.max_new_tokens):
            draft = list(call.draft_ids)
            for token in accept_tokens(draft, lambda i, ids=ids, draft=draft: next_token([*ids, *draft[:i]])):
                if token == call.end_id or len(ids) - start == call.max_new_tokens:
                    return ids[start:]
                ids.append(token)
            stop = find_stop(ids, start, call.stop_words)
            if stop is not None:
                return ids[start:stop]
        return ids[start:]


def allowed(token, banned, vocab):
    return next(other % vocab for other in range(token, token + vocab) if other % vocab not in banned)


@settings(deadline=None, max_examples=200)
@given(
    salts=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    agree=st.integers(0, 4),
    max_tokens=st.integers(1, 30),
    min_tokens=st.integers(0, 12),
    draft_len=st.integers(0, 7),
    end_ids=st.sampled_from([(), (0,), (0, 1), (0, 1, 2)]),
    bad_words=st.sampled_from([(), ((3,),), ((4, 5), (5, 6, 7)), ((3,), (4, 4))]),
    streams=st.booleans(),
)
def test_minimum_length_and_bad_words_hold_over_rounds(
    salts, agree, max_tokens, min_tokens, draft_len, end_ids, bad_words, streams
):
    vocab, prompt = 9, [5, 6, 8]
    target = hashed(salts[0], vocab)

    def draft(ids):
        return target(ids) if len(ids) % 5 < agree else hashed(salts[1], vocab)(ids)

    expected = list(prompt)
    while len(expected) - len(prompt) < max_tokens:
        banned = {word[-1] for word in bad_words if expected[len(expected) - len(word) + 1 :] == list(word[:-1])}
        if len(expected) - len(prompt) < min_tokens:
            banned |= set(end_ids)
        token = allowed(target(expected), banned, vocab)
        if token in end_ids:
            break
        expected.append(token)
    said, _, _ = answer(
        RuledEngines(target, draft, vocab),
        prompt_ids=prompt,
        max_tokens=max_tokens,
        draft_len=draft_len,
        end_ids=end_ids,
        sampling=Sampling(rules=LogitRules(min_tokens=min_tokens, bad_words=bad_words)),
        streams=streams,
    )
    assert said == expected[len(prompt) :]


@given(st.integers(0, 4), st.integers(2, 9), st.lists(st.integers(1, 8), max_size=2), st.booleans())
@settings(max_examples=100)
def test_log_probs_belong_to_the_ids_of_the_answer(draft_len, vocab, stop, streams):
    engines = FunctionEngines(hashed(1, vocab), hashed(2, vocab))
    found, counts, _ = answer(
        engines,
        prompt_ids=[1, 2],
        max_tokens=23,
        draft_len=draft_len,
        end_ids=(END, 1),
        stop_words=(tuple(stop),) if stop else (),
        streams=streams,
        wants_log_probs=True,
    )
    assert counts.log_probs == [log_prob_of(token) for token in found]
    assert all(call.wants_log_probs == (role == "target") for role, call in engines.calls)
