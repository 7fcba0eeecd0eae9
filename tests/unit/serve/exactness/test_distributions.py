"""Sampled answers have the target's distribution: chi-square against probabilities computed from its logits alone.

Every sample is a request with a seed of its own, answered by the orchestrator's loop over the local engine's parts. The
same test must catch what would be wrong in ways that have been seen elsewhere.
"""

import random

import numpy as np
import pytest

from trt_spec.serve.acceptance import accept_tokens
from trt_spec.serve.distribution import draw, softmax
from trt_spec.serve.drafting import RoundPlan
from trt_spec.serve.local_backend import sequence
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.sampling import Sampling

SAMPLES = 20_000
FEW_SAMPLES = 4_000  # a second or two; enough for every fault below
LEAST_CHANCE = 0.001
TOKENS = 2

PENALTIES = {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3}
ALL_AT_ONCE = {"temperature": 0.7, "top_k": 7, "top_p": 0.95, **PENALTIES}
SETTINGS = {
    "all at once": ALL_AT_ONCE,
    "temperature 0.7": {"temperature": 0.7, "top_p": 1.0},
    "temperature 1": {"temperature": 1.0, "top_p": 1.0},
    "temperature 1.5": {"temperature": 1.5, "top_p": 1.0},
    "top-k 5": {"top_k": 5},
    "top-p 0.9": {"top_p": 0.9},
    "penalties": {"top_p": 1.0, **PENALTIES},
}


def requests(setting, samples):
    """Requests that differ in their seeds alone."""
    rules = LogitRules(**{name: value for name, value in setting.items() if name in PENALTIES})
    others = {name: value for name, value in setting.items() if name not in PENALTIES}
    return [Sampling(**others, seed=seed, rules=rules) for seed in range(samples)]


@pytest.fixture
def chances(sampled_probabilities, chance_of_fit):
    """chances(loop, setting, samples) -> p-values of the first token and of the first two; all answers must go on."""

    def p_values(loop, setting, samples):
        first, second = expect(loop, setting, sampled_probabilities)
        said = loop.answers(requests(setting, samples), TOKENS)
        pairs = np.zeros((len(first), len(first) + 1), int)  # -1, an answer that ended, is the last column
        np.add.at(pairs, (said[:, 0], said[:, 1]), 1)
        joint = np.pad(first[:, None] * second, ((0, 0), (0, 1)))
        return chance_of_fit(pairs.sum(axis=1), first), chance_of_fit(pairs, joint)

    return p_values


def expect(loop, setting, probabilities, role="target"):
    """What ``role`` alone says: its first token [vocabulary], and the next behind each of these."""
    model, prefix = getattr(loop.pair, role), list(loop.prefix)
    first = probabilities(model.logits(prefix), prefix, **setting)
    behind = [[*prefix, token] for token in range(len(first))]
    return first, np.array([probabilities(model.logits(said), said, **setting) for said in behind])


@pytest.mark.parametrize("accept", ["tokens", "logits"])
@pytest.mark.parametrize(
    ("setting", "samples"),
    [
        pytest.param(ALL_AT_ONCE, FEW_SAMPLES, id="few, all at once"),
        *(pytest.param(value, SAMPLES, id=name, marks=pytest.mark.slow) for name, value in SETTINGS.items()),
    ],
)
def test_answers_have_the_targets_distribution(make_loop, chances, sampled_probabilities, accept, setting, samples):
    loop = make_loop(accept)
    assert min(chances(loop, setting, samples)) > LEAST_CHANCE
    # And drafts took part, by the rule that was asked for: p and q say how often the first one is kept.
    p, q = (expect(loop, setting, sampled_probabilities, role)[0] for role in ("target", "draft"))
    kept = (np.minimum(p, q) if accept == "logits" else p * q).sum()
    found = np.mean([counts.accepted[0] > 0 for counts in loop.counts])
    assert abs(found - kept) < 5 * np.sqrt(kept * (1 - kept) / samples)


class RestlessPolicy:
    """Plans rounds of all kinds, one after the other as chance has it."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def plan(self, *, running, room_tokens, ngram_tokens, cold_tokens):
        length = min(self._random.randint(0, 3), room_tokens - 1)
        if length and ngram_tokens and self._random.random() < 0.3:
            return RoundPlan(min(length, ngram_tokens), "ngram")
        return RoundPlan(length, plain_tokens=1, ahead=self._random.random() < 0.7)

    def observe(self, outcome):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("accept", ["tokens", "logits"])
def test_however_rounds_are_planned_the_distribution_is_the_targets(make_loop, chances, accept):
    loop = make_loop(accept, draft_len=3, policy=RestlessPolicy, prefix=(5, 2, 1, 3, 5, 2))  # n-grams have a match
    assert min(chances(loop, SETTINGS["temperature 0.7"], FEW_SAMPLES)) > LEAST_CHANCE
    assert {source for counts in loop.counts for source in counts.sources} == {"model", "ngram"}


def rejection_sampling(gain=1.0, resample_from_p=False):
    """Modified rejection sampling, but drafts are kept ``gain`` times as often, or replaced by draws from p."""

    def accept(draft_ids, draft_logits, target, draws, _threshold):
        picked = []
        for drafted, row in zip(draft_ids, draft_logits, strict=True):
            p, q = target(len(picked)), softmax(row)
            if not gain * p[drafted] > draws.random() * q[drafted]:
                return [*picked, draw(p if resample_from_p else np.maximum(p - q, 0.0), draws)]
            picked.append(drafted)
        return [*picked, draw(target(len(picked)), draws)]

    return accept


def kept_without_a_look(draft_ids, choose):
    """Token acceptance that keeps the first draft, whatever the target says, where it is the token 5."""
    return [5, choose(1)] if draft_ids and draft_ids[0] == 5 else accept_tokens(draft_ids, choose)


FAULTS = {
    "kept 1.1 times as often": ("logits", {}, {"accept_logits": rejection_sampling(gain=1.1)}),
    "resampled from p": ("logits", {}, {"accept_logits": rejection_sampling(resample_from_p=True)}),
    "one seed for draft and target": ("logits", {"reseed": lambda _, call, seed: (seed << 8) + len(call.ids)}, {}),
    "raw draft logits": ("logits", {"tell_draft": lambda logits, *_: logits}, {}),
    "one seed for every round": ("tokens", {"reseed": lambda _role, _call, seed: seed}, {}),
    "kept without a look": ("tokens", {}, {"accept_tokens": kept_without_a_look}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("accept", "options", "patches"), FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_caught(monkeypatch, make_loop, chances, accept, options, patches):
    for name, fault in patches.items():
        monkeypatch.setattr(sequence, name, fault)
    found = chances(make_loop(accept, **options), SETTINGS["temperature 0.7"], FEW_SAMPLES)
    assert min(found) < LEAST_CHANCE


@pytest.mark.slow
def test_the_faults_differ_from_the_rule_by_their_fault_alone(monkeypatch, make_loop, chances):
    monkeypatch.setattr(sequence, "accept_logits", rejection_sampling())
    assert min(chances(make_loop("logits"), SETTINGS["temperature 0.7"], FEW_SAMPLES)) > LEAST_CHANCE


@pytest.mark.parametrize(("statistic", "degrees"), [(3.8415, 1), (5.9915, 2), (18.3070, 10), (24.9958, 15)])
def test_the_chance_is_that_of_the_chi_square_distribution(chance_of_fit, statistic, degrees):
    """Its table's values for 0.05: of ``degrees`` + 1 cells that expect a thousand each, two are off."""
    off = np.sqrt(statistic * 1000 / 2)
    counts = np.full(degrees + 1, 1000.0)
    counts[:2] += off, -off
    assert abs(chance_of_fit(counts, np.full(degrees + 1, 1 / (degrees + 1))) - 0.05) < 1e-4
