"""Logits acceptance end to end in process: the loop on tiny engines draws from the target's own distribution.

The engine has tests of its own: here it is what the loop asks for and sends that is on trial.
"""

import asyncio
import itertools
import math

import numpy as np
import pytest

from trt_spec.serve import draft_logits
from trt_spec.serve.acceptance import accept_logits, accept_tokens
from trt_spec.serve.engine_calls import Draft, TargetTokens
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.rounds import RoundCounts, Surroundings
from trt_spec.serve.sampling import Sampler, Sampling
from trt_spec.serve.speculate import speculate
from trt_spec.serve.token_answer import SpeculationRequest, TokenAnswer

VOCAB, END, PROMPT, LENGTH = 5, 4, [1, 2], 3
SAMPLES = 1200


def table(seed):
    """Logits by the last token, far apart from those of another seed."""
    return np.random.default_rng(seed).normal(0.0, 1.3, (VOCAB, VOCAB)).astype(np.float32)


TARGET, DRAFT = table(1), table(2)


class TinyEngines:
    """Bigram models that sample, stop and accept as the engine does."""

    def __init__(self, as_sampled=draft_logits.as_sampled):
        self._as_sampled = as_sampled
        self.drafted = self.accepted = 0

    async def draft(self, call):
        sampler, ids, rows = Sampler(call.sampling, len(call.ids), call.end_id), [], []
        for _ in range(call.max_new_tokens):
            said = [*call.ids.tolist(), *ids]
            row = DRAFT[said[-1]]
            token = sampler.choose(row, said)
            if token == call.end_id:
                break
            ids.append(token)
            rows.append(row)
        if call.accept == "tokens" or not ids:
            return Draft(ids)
        if call.accept == "fast_logits":
            return Draft(ids, np.stack(rows), is_handle=True)
        sampler = Sampler(call.sampling, len(call.ids), call.end_id)
        return Draft(ids, self._as_sampled(np.stack(rows), sampler, call.ids, ids, VOCAB))

    async def target(self, call):
        sampler, ids, drafts = Sampler(call.sampling, len(call.ids), call.end_id), [], list(call.draft_ids)

        def said(accepted=0):
            return [*call.ids.tolist(), *ids, *drafts[:accepted]]

        if call.draft_logits is not None:
            picked = accept_logits(
                drafts,
                call.draft_logits,
                lambda i: sampler.distribution(TARGET[said(i)[-1]], said(i)),
                sampler.random,
            )
        elif drafts:
            picked = accept_tokens(drafts, lambda i: sampler.choose(TARGET[said(i)[-1]], said(i)))
        else:
            picked = []
            for _ in range(call.max_new_tokens):
                picked.append(sampler.choose(TARGET[(said() + picked)[-1]], said() + picked))
        self.drafted += len(drafts)
        for token in picked[: call.max_new_tokens]:
            if token == call.end_id:
                break
            ids.append(token)
        return TargetTokens(ids)


def expected(sampling):
    """Probability of every answer, which ends at the end id or at LENGTH tokens."""
    found = {}
    for answer in itertools.product(range(VOCAB), repeat=LENGTH):
        said, probability = list(PROMPT), 1.0
        sampler = Sampler(sampling, len(PROMPT), END)
        for token in answer:
            probability *= sampler.distribution(TARGET[said[-1]], said)[token]
            if token == END:
                break
            said.append(token)
        else:
            token = None
        ids = tuple(said[len(PROMPT) :])
        found[ids] = max(found.get(ids, 0.0), probability)
    return {ids: probability for ids, probability in found.items() if probability > 0.0}


def sampled(sampling, accept, engines):
    found = {}

    async def collect():
        for seed in range(SAMPLES):
            own = Sampling(sampling.temperature, sampling.top_k, sampling.top_p, seed, sampling.rules)
            request = SpeculationRequest(PROMPT, LENGTH, 2, end_ids=(END,), sampling=own)
            said = []
            counts = RoundCounts()
            async for new_ids in speculate(engines, request, counts, around=Surroundings(accept=accept)):
                said += new_ids
            engines.accepted += sum(counts.accepted)
            found[tuple(said)] = found.get(tuple(said), 0) + 1

    asyncio.run(collect())
    return found


@pytest.fixture
def p_value(chance_of_fit):
    """p_value(probabilities, found), both by answer; an answer that cannot be has p-value 0."""

    def p_value(probabilities, found):
        assert math.isclose(sum(probabilities.values()), 1.0, abs_tol=1e-6)
        if found.keys() - probabilities.keys():
            return 0.0
        counts = [found.get(ids, 0) for ids in probabilities]
        return chance_of_fit(np.array(counts), np.array(list(probabilities.values())))

    return p_value


SETTINGS = {
    "T = 0.7": Sampling(0.7, top_p=1.0),
    "top-k": Sampling(1.5, top_k=3),
    "top-p": Sampling(1.0, top_p=0.8),
    "penalties": Sampling(1.0, top_p=1.0, rules=LogitRules(repetition_penalty=1.5, presence_penalty=0.4)),
    "minimum length": Sampling(1.0, top_p=1.0, rules=LogitRules(min_tokens=1)),
    "raw": Sampling(1.0, top_p=1.0),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("raw", "minimum length") else pytest.mark.slow) for name in SETTINGS],
)
def test_answers_have_the_targets_distribution(p_value, name):
    engines = TinyEngines()
    assert p_value(expected(SETTINGS[name]), sampled(SETTINGS[name], "logits", engines)) > 0.001
    assert engines.accepted > 0.25 * engines.drafted


def test_fast_logits_have_it_too_where_they_are_used(p_value):
    engines = TinyEngines()
    assert p_value(expected(SETTINGS["raw"]), sampled(SETTINGS["raw"], "fast_logits", engines)) > 0.001


def test_logits_accept_more_than_equality():
    by_logits, by_tokens = TinyEngines(), TinyEngines()
    sampled(SETTINGS["raw"], "logits", by_logits)
    sampled(SETTINGS["raw"], "tokens", by_tokens)
    assert by_logits.accepted / by_logits.drafted > 1.2 * by_tokens.accepted / by_tokens.drafted


def test_logits_that_are_not_what_the_draft_sampled_from_are_found_out(p_value):
    def raw(rows, sampler, prefix, ids, width):
        return rows

    assert p_value(expected(SETTINGS["T = 0.7"]), sampled(SETTINGS["T = 0.7"], "logits", TinyEngines(raw))) < 0.001


def test_a_draft_that_stops_at_its_end_id_is_found_out(monkeypatch, p_value):
    whole = TokenAnswer.draft_call

    def stopping(self, *given):
        call = whole(self, *given)
        return call._replace(end_id=END)

    monkeypatch.setattr(TokenAnswer, "draft_call", stopping)
    assert p_value(expected(SETTINGS["raw"]), sampled(SETTINGS["raw"], "logits", TinyEngines())) < 0.001


@pytest.mark.parametrize(
    ("deployed", "sampling", "uses_draft_logits", "resolved"),
    [
        ("logits", Sampling(), None, "tokens"),  # greedy: equality accepts the same
        ("fast_logits", Sampling(), None, "tokens"),
        ("logits", Sampling(0.7, top_k=3), None, "logits"),
        ("logits", Sampling(0.7, top_k=3), False, "tokens"),
        ("tokens", Sampling(0.7, top_k=3), None, "tokens"),
        ("fast_logits", Sampling(1.0, top_p=1.0), None, "fast_logits"),
        ("fast_logits", Sampling(0.9, top_p=1.0), None, "tokens"),
        ("fast_logits", Sampling(1.0, top_p=0.9), None, "tokens"),
        ("fast_logits", Sampling(1.0, top_k=50, top_p=1.0), None, "tokens"),
        ("fast_logits", Sampling(1.0, top_p=1.0, rules=LogitRules(min_tokens=3)), None, "tokens"),
    ],
)
def test_logits_are_used_where_they_are_right_and_help(deployed, sampling, uses_draft_logits, resolved):
    request = SpeculationRequest([1], 4, 2, sampling=sampling, uses_draft_logits=uses_draft_logits)
    assert draft_logits.resolve_accept(deployed, request) == resolved


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("width", [3, 5, 7])
def test_what_is_sent_has_the_softmax_of_the_draft_and_is_finite(dtype, width):
    rows = (40 * table(3)).astype(dtype)[:2]
    sampler = Sampler(Sampling(0.5, top_k=2))
    sent = draft_logits.as_sampled(rows, sampler, np.array([1], np.int32), [2, 3], width)
    assert (sent.dtype, sent.shape) == (dtype, (2, width))
    assert np.isfinite(sent).all()
    for row, raw in zip(sent, rows, strict=True):
        weights = np.exp(row.astype(np.float64) - row.max())
        q = sampler.distribution(raw.astype(np.float32), [1])[:width]
        if q.sum() > 0.999:
            np.testing.assert_allclose((weights / weights.sum())[: len(q)], q, atol=2e-3)
