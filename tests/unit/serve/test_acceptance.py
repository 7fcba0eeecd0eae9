import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.acceptance import accept_logits, accept_tokens, count_accepted

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


VOCABULARY = 6


def distributions(seed, temperature=1.0):
    """Two models of two tokens each: logits by what was said before."""
    random = np.random.default_rng(seed)
    table = random.normal(0, 2, (2, VOCABULARY + 1, VOCABULARY)).astype(np.float32) / temperature
    return table[0], table[1]


def softmax(logits):
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def pick(weights, uniform):
    """The index that a uniform draw falls on."""
    return min(int(np.searchsorted(np.cumsum(weights), uniform * weights.sum(), side="right")), len(weights) - 1)


def histogram(rule, seed, samples=10_000, drafts=2):
    """Counts of the first two tokens that ``rule`` yields when a draft model proposes them."""
    draft, target = distributions(seed)
    p, q = np.array([softmax(row) for row in target]), np.array([softmax(row) for row in draft])
    random = np.random.default_rng(seed + 1)
    counts = np.zeros((VOCABULARY, VOCABULARY), int)
    for uniforms in random.random((samples, drafts + 1)):
        context = [VOCABULARY]
        for uniform in uniforms[:drafts]:
            context.append(pick(q[context[-1]], uniform))
        said = rule(context[1:], draft[context[:-1]], lambda i, context=context: p[context[i]], random)
        if len(said) == 1:  # the second token is then the target's own, in the next round
            said = [*said, pick(p[said[0]], uniforms[-1])]
        counts[said[0], said[1]] += 1
    return counts, p[VOCABULARY][:, None] * p[:VOCABULARY] * samples


def chi_square(counts, expected):
    """Over cells that expect at least five; the rest is one cell."""
    rare = expected < 5
    cells = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    return ((cells[0] - cells[1]) ** 2 / np.maximum(cells[1], 1e-9)).sum(), np.count_nonzero(~rare)


CRITICAL = 68.0  # chi-square of 35 degrees of freedom at p = 0.0007; fewer degrees only make it stricter


@pytest.mark.parametrize("seed", range(4))
def test_logits_acceptance_has_the_targets_distribution(seed):
    statistic, _ = chi_square(*histogram(accept_logits, seed))
    assert statistic < CRITICAL


def biased(draft_ids, draft_logits, target, random):
    """What a wrong kernel would do: keep a little too much."""
    return accept_logits(draft_ids, draft_logits, target, random, threshold=0.4)


def resampled_from_p(draft_ids, draft_logits, target, random):
    """Another classic fault: a rejected token is drawn from p and not from what p has more than q."""
    picked = []
    for drafted, row in zip(draft_ids, draft_logits, strict=True):
        p, q = target(len(picked)), softmax(row)
        if not p[drafted] > random.random() * q[drafted]:
            return [*picked, pick(p, random.random())]
        picked.append(drafted)
    return [*picked, pick(target(len(picked)), random.random())]


@pytest.mark.parametrize("fault", [biased, resampled_from_p])
def test_a_biased_acceptance_is_caught_by_the_same_test(fault):
    statistic, _ = chi_square(*histogram(fault, 0))
    assert statistic > CRITICAL


def test_a_token_that_the_target_never_says_is_never_kept():
    certain = np.array([0.0, 1.0, 0.0])
    for seed in range(50):
        random = np.random.default_rng(seed)
        assert accept_logits([0], np.array([[5.0, 0.0, 0.0]], np.float32), lambda _i: certain, random) == [1]


def test_greedy_targets_keep_what_token_acceptance_keeps():
    """A greedy target's distribution is one token; then both rules agree, whatever the draft's logits."""
    random = np.random.default_rng(3)
    for _ in range(200):
        picks = random.integers(0, VOCABULARY, 4).tolist()
        drafts = [pick if random.random() < 0.6 else int(random.integers(VOCABULARY)) for pick in picks[:3]]
        logits = random.normal(0, 2, (3, VOCABULARY)).astype(np.float32)
        one_hot = lambda i, picks=picks: np.eye(VOCABULARY)[picks[i]]  # noqa: E731
        assert accept_logits(drafts, logits, one_hot, random) == accept_tokens(drafts, lambda i, picks=picks: picks[i])
