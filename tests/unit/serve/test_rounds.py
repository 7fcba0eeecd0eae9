"""Whatever a policy plans and whoever drafts, ahead or not, failing or not: the answer is the target's own."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.acceptance import accept_tokens
from trt_spec.serve.drafting import FixedLength, RoundPlan
from trt_spec.serve.engine_calls import Draft, DraftFailed, TargetTokens
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.rounds import RoundCounts, Surroundings
from trt_spec.serve.sampling import Sampling
from trt_spec.serve.speculate import speculate
from trt_spec.serve.stopping import find_stop
from trt_spec.serve.token_answer import SpeculationRequest

VOCAB = 9
ALL = frozenset({"model", "ngram"})


class RandomPolicy:
    """Plans anything that the contract allows, and keeps what it is told."""

    def __init__(self, seed, ahead):
        self._random, self._ahead = random.Random(seed), ahead
        self.outcomes, self.offers = [], []

    def plan(self, *, running, room_tokens, ngram_tokens, cold_tokens):
        self.offers.append((running, room_tokens, ngram_tokens, cold_tokens))
        kind = self._random.choice(["plain", "model", "model", "ngram"])
        length = self._random.randint(0, room_tokens - 1)
        if kind == "ngram":
            length = min(length, ngram_tokens)
        if kind == "plain" or length == 0:
            return RoundPlan(0, plain_tokens=self._random.randint(1, room_tokens))
        return RoundPlan(length, kind, ahead=self._ahead and self._random.random() < 0.7)

    def observe(self, outcome):
        self.outcomes.append(outcome)


def hashed(salt, vocab):
    return lambda ids: hash((salt, *ids[-3:])) % vocab


def allowed(token, banned, vocab):
    return next(other % vocab for other in range(token, token + vocab) if other % vocab not in banned)


class SlowEngines:
    """Engines whose next token is ``target(ids)`` or ``draft(ids)``, the next number where that is banned.

    They keep to minimum length and bad words as the C++ engine does. Their calls end in any order, and the draft may
    fail; they note which calls run at the same time.
    """

    def __init__(self, target, draft, seed, failing=0.0, vocab=VOCAB):
        self._functions = {"target": target, "draft": draft}
        self._random, self._failing, self._vocab = random.Random(seed), failing, vocab
        self.calls, self.open, self.together = [], [], set()

    async def draft(self, call):
        await self._wait("draft")
        if self._random.random() < self._failing:
            raise DraftFailed("broken")
        return Draft(self._run("draft", call))

    def begin_draft(self, call):
        return asyncio.ensure_future(self.draft(call))

    async def target(self, call):
        await self._wait("target")
        return TargetTokens(self._run("target", call))

    def _run(self, role, call):
        self.calls.append((role, call))
        plain, rules, ids, start = self._functions[role], call.sampling.rules, call.ids.tolist(), len(call.ids)

        def next_token(ids):
            banned = {word[-1] for word in rules.bad_words if list(ids[len(ids) - len(word) + 1 :]) == list(word[:-1])}
            if len(ids) - start < rules.min_tokens:
                banned.add(call.end_id)
            return allowed(plain(ids), banned, self._vocab)

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

    async def _wait(self, role):
        self.open.append(role)
        self.together.add(tuple(sorted(self.open)))
        for _ in range(self._random.randint(0, 3)):
            await asyncio.sleep(0)
        self.open.remove(role)


def run(engines, policy, around=None, **given):
    counts, rounds = RoundCounts(), []

    async def collect():
        async for new_ids in speculate(
            engines, SpeculationRequest(**given), counts, policy, around or Surroundings(sources=ALL)
        ):
            rounds.append(new_ids)

    asyncio.run(collect())
    return [token for new_ids in rounds for token in new_ids], counts, rounds


def expected_answer(target, prompt, max_tokens, min_tokens, end_ids, bad_words):
    ids = list(prompt)
    while len(ids) - len(prompt) < max_tokens:
        banned = {word[-1] for word in bad_words if ids[len(ids) - len(word) + 1 :] == list(word[:-1])}
        if len(ids) - len(prompt) < min_tokens:
            banned |= set(end_ids)
        token = allowed(target(ids), banned, VOCAB)
        if token in end_ids:
            break
        ids.append(token)
    return ids[len(prompt) :]


@settings(deadline=None, max_examples=400)
@given(
    salts=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    agree=st.integers(0, 5),
    max_tokens=st.integers(1, 40),
    min_tokens=st.integers(0, 12),
    end_ids=st.sampled_from([(), (0,), (0, 1), (0, 1, 2)]),
    bad_words=st.sampled_from([(), ((3,),), ((4, 5), (5, 6, 7))]),
    streams=st.booleans(),
    seed=st.integers(0, 999),
    ahead=st.booleans(),
    failing=st.sampled_from([0.0, 0.0, 0.2, 1.0]),
    accept=st.sampled_from(["tokens", "logits"]),
)
def test_the_answer_is_the_targets_own(
    salts, agree, max_tokens, min_tokens, end_ids, bad_words, streams, seed, ahead, failing, accept
):
    prompt, target = [5, 6, 8], hashed(salts[0], VOCAB)

    def draft(ids):
        return target(ids) if len(ids) % 5 < agree else hashed(salts[1], VOCAB)(ids)

    policy = RandomPolicy(seed, ahead)
    engines = SlowEngines(target, draft, seed, failing)
    # Greedy engines stand for sampling ones here, so that drafts are asked for as logits acceptance needs them.
    rules = LogitRules(min_tokens=min_tokens, bad_words=bad_words)
    sampling = Sampling(top_p=0.5, rules=rules) if accept == "logits" else Sampling(rules=rules)
    said, counts, rounds = run(
        engines,
        policy,
        Surroundings(sources=ALL, accept=accept),
        prompt_ids=prompt,
        max_tokens=max_tokens,
        draft_len=6,
        end_ids=end_ids,
        sampling=sampling,
        streams=streams,
    )
    assert said == expected_answer(target, prompt, max_tokens, min_tokens, end_ids, bad_words)
    assert ("draft", "draft") not in engines.together
    assert all(offer[2] <= max(0, min(6, offer[1] - 1)) for offer in policy.offers)
    assert all(0 <= outcome.accepted <= outcome.drafted <= outcome.plan.length for outcome in policy.outcomes)
    assert sum(counts.drafted) >= sum(counts.accepted)
    assert len(counts.sources) == len(counts.drafted) == len(counts.accepted)
    if failing == 0.0:
        assert not counts.fell_back
        told = [outcome.new_tokens for outcome in policy.outcomes]
        assert sum(told) + (streams and bool(rounds)) * 1 >= len(said)


def counting(ids):
    return len(ids) % 100 + 1


def plans(*given):
    """A policy that goes through ``given`` and stays with the last."""

    class Planned(RandomPolicy):
        def plan(self, *, room_tokens, **offer):
            self.offers.append(offer)
            plan = given[min(len(self.offers), len(given)) - 1]
            length = min(plan.length, room_tokens - 1)
            return plan._replace(length=length, plain_tokens=plan.plain_tokens or 1)

    return Planned(0, ahead=True)


def test_a_right_guess_makes_the_next_draft_free():
    engines = SlowEngines(counting, counting, 0, vocab=1000)
    policy = plans(RoundPlan(3, ahead=True))
    said, counts, _ = run(engines, policy, prompt_ids=[1], max_tokens=16, draft_len=3)
    assert said == [counting(range(n)) for n in range(1, 17)]
    assert counts.accepted == [3, 3, 3, 3]
    drafted = [(len(call.ids), call.max_new_tokens) for role, call in engines.calls if role == "draft"]
    assert drafted == [(1, 3), (4, 4), (8, 4), (12, 4)]
    assert ("draft", "target") in engines.together
    assert [offer["cold_tokens"] for offer in policy.offers] == [1, 1, 1, 1]


def test_a_wrong_guess_is_waited_for_and_dropped():
    engines = SlowEngines(lambda ids: 1, lambda ids: 2, 0)
    said, counts, _ = run(engines, plans(RoundPlan(2, ahead=True)), prompt_ids=[1], max_tokens=6, draft_len=2)
    assert said == [1] * 6
    assert sum(counts.accepted) == 0
    # Each round's draft begins where the answer ends, behind a call ahead that came to nothing.
    assert {1, 2, 3, 4, 5} <= {len(call.ids) for role, call in engines.calls if role == "draft"}
    assert ("draft", "draft") not in engines.together


def test_a_call_ahead_that_fails_leaves_the_rest_to_the_target():
    class Failing(SlowEngines):
        async def draft(self, call):
            if len(call.ids) > 1:
                raise DraftFailed("broken")
            return await super().draft(call)

    engines = Failing(counting, counting, 0, vocab=1000)
    said, counts, _ = run(engines, plans(RoundPlan(2, ahead=True)), prompt_ids=[1], max_tokens=9, draft_len=2)
    assert said == [counting(range(n)) for n in range(1, 10)]
    assert (counts.drafted, counts.accepted, counts.fell_back) == ([2], [2], True)


def test_cold_tokens_are_what_the_draft_engine_has_not_computed():
    engines = SlowEngines(counting, counting, 0, vocab=1000)
    policy = plans(RoundPlan(0, plain_tokens=5), RoundPlan(3), RoundPlan(2), RoundPlan(0, plain_tokens=4), RoundPlan(1))
    run(engines, policy, prompt_ids=[7] * 10, max_tokens=18, draft_len=3)
    # Prompt of 10 and 5 more; 3 drafted behind 15, of which 2 are computed, so 17 of 19; 1 more of 2: 20 of 22.
    assert [offer["cold_tokens"] for offer in policy.offers][:5] == [10, 15, 2, 2, 6]


def test_ngram_drafts_need_no_draft_engine():
    period = [3, 4, 5, 6]

    def target(ids):
        return period[len(ids) % 4]

    class NoDraft(SlowEngines):
        async def draft(self, call):
            raise AssertionError("asked")

    policy = FixedLength(3, "ngram", 8)
    said, counts, _ = run(
        NoDraft(target, target, 0), policy, Surroundings(sources=frozenset({"ngram"})), prompt_ids=[1], max_tokens=30,
        draft_len=3,
    )  # fmt: skip
    assert said == [target(range(n)) for n in range(1, 31)]
    assert set(counts.sources) == {"ngram"}
    assert sum(counts.accepted) == sum(counts.drafted) > 12


class Left(Exception):
    pass


@pytest.mark.parametrize(
    ("leaves_behind", "is_handle", "calls"),
    [(0, False, ["draft"]), (0, True, ["draft", "target"]), (1, False, ["draft", "target"])],
)
def test_who_has_left_costs_no_further_call_unless_logits_wait_to_be_fetched(leaves_behind, is_handle, calls):
    done = []

    class Watched(SlowEngines):
        async def draft(self, call):
            draft = await super().draft(call)
            done.append("draft")
            return Draft(draft.ids, is_handle=is_handle)

        async def target(self, call):
            told = await super().target(call)
            done.append("target")
            return told

    def check():
        if len(done) > leaves_behind:
            raise Left

    engines = Watched(counting, counting, 0, vocab=1000)
    with pytest.raises(Left):
        run(engines, None, Surroundings(check=check), prompt_ids=[1], max_tokens=20, draft_len=2)
    assert done == calls


def test_a_handle_is_never_drafted_ahead_of():
    class Handles(SlowEngines):
        async def draft(self, call):
            return (await super().draft(call))._replace(is_handle=True)

    engines = Handles(counting, counting, 0, vocab=1000)
    run(engines, plans(RoundPlan(2, ahead=True)), prompt_ids=[1], max_tokens=9, draft_len=2)
    assert [role for role, _ in engines.calls] == ["draft", "target"] * 3


def test_policies_are_told_times_and_load_but_not_of_the_first_word():
    class Timed(SlowEngines):
        async def draft(self, call):
            await asyncio.sleep(0.02)
            return await super().draft(call)

        async def target(self, call):
            await asyncio.sleep(0.04)
            return await super().target(call)

    policy, engines = plans(RoundPlan(2), RoundPlan(0, plain_tokens=3)), Timed(counting, counting, 0, vocab=1000)
    run(engines, policy, Surroundings(running=lambda: 7), prompt_ids=[1], max_tokens=7, draft_len=2, streams=True)
    drafted, plain = policy.outcomes
    assert (drafted.running, drafted.drafted, drafted.new_tokens) == (7, 2, 3)
    assert 0.015 < drafted.draft_s < drafted.target_s
    assert (plain.drafted, plain.draft_s, plain.new_tokens) == (0, 0.0, 3)
    assert plain.target_s > 0.03
