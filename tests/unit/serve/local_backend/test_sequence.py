"""One request after the other on a real engine of a tiny model."""

from dataclasses import replace

import numpy as np
import pytest

from trt_spec.serve import sampling as sampling_module
from trt_spec.serve.local_backend.batcher import RequestCancelled
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.sequence import GenerateRequest
from trt_spec.serve.logit_rules import LogitRules, apply_rules
from trt_spec.serve.sampling import Sampler, Sampling

MAX_SEQ_LEN = 128


class CountingEngine(Engine):
    """Counts the tokens it was fed."""

    fed = 0

    def forward(self, pieces):
        self.fed += sum(len(piece.tokens) for piece in pieces)
        return super().forward(pieces)


@pytest.fixture
def open_engine(build_tiny_engine):
    """open_engine(rows) -> an engine whose KV cache holds so many sequences."""
    return lambda rows: CountingEngine(build_tiny_engine("pair-target"), kv_tokens=rows * MAX_SEQ_LEN)


@pytest.fixture
def engine(open_engine):
    return open_engine(2)


@pytest.fixture(scope="module")
def reference(tiny):
    """(prompt, 40 greedy tokens) pairs by transformers."""
    stored = np.load(tiny / "pair-target" / "reference.npz")
    prompts = [[int(t) for t in row if t >= 0] for row in stored["prompts"]]
    return list(zip(prompts, stored["greedy"].tolist(), strict=True))


def test_greedy_decoding_equals_transformers(engine, reference, generate):
    for prompt, expected in reference:
        assert generate(engine, GenerateRequest(prompt, len(expected))).new_ids == expected


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_a_sampled_answer_ends_where_its_end_id_is_drawn(engine, reference, temperature, generate):
    prompt, _ = reference[0]
    sampling = Sampling(temperature=temperature, top_p=1.0, seed=3)
    drawn = generate(engine, GenerateRequest(prompt, 20, sampling=sampling)).new_ids
    ended = generate(engine, GenerateRequest(prompt, 20, sampling=sampling, end_id=drawn[4]))
    assert ended.new_ids == drawn[: drawn.index(drawn[4])]


@pytest.mark.parametrize("wrong_at", range(6))
def test_verification_keeps_the_agreed_drafts_and_one_token_more(engine, reference, wrong_at, generate):
    prompt, expected = reference[0]
    draft = list(expected[:5])
    if wrong_at < 5:
        draft[wrong_at] = (draft[wrong_at] + 1) % 320
    result = generate(engine, GenerateRequest(prompt, 6, draft_ids=draft, return_logits=True))
    assert result.new_ids == expected[: wrong_at + 1]
    assert result.logits.argmax(axis=1).tolist() == result.new_ids


def test_a_call_that_resends_the_sequence_costs_only_its_new_tokens(engine, reference, generate):
    prompt, expected = reference[0]
    generate(engine, GenerateRequest(prompt, 4))
    assert engine.fed == len(prompt) + 3
    engine.fed = 0
    context = [*prompt, *expected[:4]]
    result = generate(engine, GenerateRequest(context, 3, draft_ids=expected[4:6]))
    assert result.new_ids == expected[4:7]
    assert engine.fed == 1 + 2  # the last token of the context was never fed, and two drafts


def test_rejected_drafts_are_forgotten(engine, reference, generate):
    prompt, expected = reference[1]
    context = list(prompt)
    while len(context) < len(prompt) + 20:
        context += generate(engine, GenerateRequest(context, 4, draft_ids=[5, 6, 7])).new_ids
    assert context[len(prompt) :] == expected[: len(context) - len(prompt)]


def test_conversations_with_a_common_beginning_do_not_disturb_each_other(open_engine, reference, generate):
    engine = open_engine(3)
    prompt, expected = reference[2]
    other = [*prompt, 20, 21, 22]
    generate(engine, GenerateRequest(other, 1))
    engine.fed = 0
    assert generate(engine, GenerateRequest(prompt, 8)).new_ids == expected[:8]
    assert engine.fed == 1 + 7  # the common beginning was copied
    engine.fed = 0
    generate(engine, GenerateRequest([*other, 23], 1))
    generate(engine, GenerateRequest([*prompt, *expected[:8]], 1))
    assert engine.fed == 1 + 1  # both are still there, the last token of the answer was never fed


def test_the_least_recently_used_sequence_makes_room(engine, reference, generate):
    prompts = [prompt for prompt, _ in reference[:3]]
    for prompt in prompts:
        generate(engine, GenerateRequest(prompt, 1))
    engine.fed = 0
    generate(engine, GenerateRequest(prompts[2], 1))
    assert engine.fed == 1
    generate(engine, GenerateRequest(prompts[0], 1))
    assert engine.fed > 2  # had been given up


def test_end_id_is_left_out_and_stop_words_are_kept(engine, reference, generate):
    prompt, expected = reference[0]
    end = expected[5]
    assert end not in expected[:5]
    assert generate(engine, GenerateRequest(prompt, 20, end_id=end)).new_ids == expected[:5]
    stop = (tuple(expected[3:5]),)
    assert generate(engine, GenerateRequest(prompt, 20, stop_words=stop)).new_ids == expected[:5]
    drafted = GenerateRequest(prompt, 9, draft_ids=expected[:8], stop_words=stop, return_logits=True)
    result = generate(engine, drafted)
    assert result.new_ids == expected[:5]
    assert len(result.logits) == 5


def test_sampling_depends_on_the_seed_alone(engine, reference, generate):
    prompt, _ = reference[0]

    def sample(seed):
        sampling = Sampling(temperature=1.5, top_p=1.0, seed=seed)
        return generate(engine, GenerateRequest(prompt, 12, sampling=sampling)).new_ids

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(5)}) > 1


def test_a_cancelled_request_stops(engine, generate):
    answers = iter([False, False, True])
    with pytest.raises(RequestCancelled):
        generate(engine, GenerateRequest([1, 2], 50), lambda: next(answers))
    assert engine.fed == 3


def test_draft_logits_are_accepted_as_the_rule_says(engine, reference, generate):
    """A greedy target keeps what token acceptance keeps; a certain draft that the target doubts is resampled."""
    prompt, expected = reference[0]
    for wrong_at in range(4):
        draft = list(expected[:4])
        draft[wrong_at] = (draft[wrong_at] + 1) % 320
        logits = np.random.default_rng(wrong_at).normal(0, 3, (4, 320)).astype(np.float32)
        result = generate(engine, GenerateRequest(prompt, 5, draft_ids=draft, draft_logits=logits))
        assert result.new_ids == expected[: wrong_at + 1]


def test_sampled_verification_by_logits_has_the_targets_distribution(engine, reference, generate):
    """2,000 first tokens behind drafts of a poor draft model, against the target's own probabilities."""
    prompt, _ = reference[0]
    sampling = Sampling(temperature=1.5, top_k=8)
    logits = generate(engine, GenerateRequest(prompt, 1, return_logits=True)).logits[0]
    p = Sampler(sampling).distribution(logits, ())
    random = np.random.default_rng(5)
    q_logits = (logits / 1.5 + random.normal(0, 1.0, len(logits))).astype(np.float32)
    q = np.exp(q_logits.astype(np.float64) - q_logits.max())
    q /= q.sum()
    counts = np.zeros(len(p), int)
    for seed in range(2000):
        drafted = int(random.choice(len(q), p=q))
        request = GenerateRequest(
            prompt, 2, [drafted], sampling=replace(sampling, seed=seed), draft_logits=q_logits[None]
        )
        counts[generate(engine, request).new_ids[0]] += 1
    kept = p > 0
    assert counts[~kept].sum() == 0
    expected = p[kept] * counts.sum()
    assert ((counts[kept] - expected) ** 2 / expected).sum() < 24.3  # 7 degrees of freedom, p = 0.001; seeds are fixed


def all_logits(generate, engine, ids):
    """Logits [len(ids), vocab_size] behind each of ``ids``, by a call of their own."""
    return generate(engine, GenerateRequest(list(ids), 1, return_context_logits=True)).context_logits


def log_softmax(rows):
    rows = rows.astype(np.float64)
    return (
        rows
        - np.log(np.exp(rows - rows.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
        - rows.max(axis=1, keepdims=True)
    )


def test_context_logits_cover_the_whole_prompt_whatever_was_cached(engine, reference, generate):
    prompt, expected = reference[0]
    first = generate(engine, GenerateRequest(prompt, 3, return_logits=True))
    engine.fed = 0
    again = generate(engine, GenerateRequest(prompt, 3, return_logits=True, return_context_logits=True))
    assert engine.fed == len(prompt) + 2  # nothing was taken over
    assert again.new_ids == first.new_ids == expected[:3]
    assert again.context_logits.shape == (len(prompt), 320)
    np.testing.assert_allclose(again.context_logits[-1], again.logits[0])
    np.testing.assert_allclose(again.logits, first.logits, atol=1e-4)
    whole = all_logits(generate, engine, [*prompt, *expected[:3]])
    np.testing.assert_allclose(again.context_logits, whole[: len(prompt)], atol=1e-4)


def test_context_logits_beside_drafts(engine, reference, generate):
    prompt, expected = reference[1]
    request = GenerateRequest(prompt, 4, expected[:3], return_logits=True, return_context_logits=True)
    result = generate(engine, request)
    assert result.new_ids == expected[:4]
    assert result.context_logits.shape == (len(prompt), 320)
    assert result.logits.argmax(axis=1).tolist() == expected[:4]


def test_a_cache_that_context_logits_left_is_sound(open_engine, reference, generate):
    engine = open_engine(3)
    prompt, expected = reference[0]
    other = [*prompt, 20, 21]
    generate(engine, GenerateRequest(other, 1))
    all_logits(generate, engine, prompt)
    assert generate(engine, GenerateRequest([*prompt, *expected[:2]], 5)).new_ids == expected[2:7]


@pytest.mark.parametrize("normalizes", [True, False])
def test_log_probs_of_a_greedy_answer(engine, reference, normalizes, generate):
    prompt, expected = reference[0]
    request = GenerateRequest(prompt, 6, return_log_probs=True, normalize_log_probs=normalizes)
    result = generate(engine, request)
    rows = log_softmax(all_logits(generate, engine, [*prompt, *expected[:5]])[len(prompt) - 1 :])
    values = rows[np.arange(6), expected[:6]]
    assert result.cum_log_prob == pytest.approx(values.sum(), abs=1e-4)
    np.testing.assert_allclose(result.log_probs, np.zeros(6) if normalizes else values, atol=1e-4)


def test_the_end_id_counts_in_the_cumulative_log_prob_alone(engine, reference, generate):
    prompt, expected = reference[0]
    asked = {"return_log_probs": True, "normalize_log_probs": False}
    ended = generate(engine, GenerateRequest(prompt, 20, end_id=expected[5], **asked))
    whole = generate(engine, GenerateRequest(prompt, 6, **asked))
    np.testing.assert_allclose(ended.log_probs, whole.log_probs[:5], atol=1e-4)
    assert ended.cum_log_prob == pytest.approx(whole.cum_log_prob, abs=1e-4)


def test_log_probs_of_sampled_tokens_are_those_of_their_candidates(engine, reference, generate):
    prompt, _ = reference[0]
    sampling = Sampling(temperature=1.5, top_k=4, seed=3)
    request = GenerateRequest(prompt, 5, sampling=sampling, return_log_probs=True, return_logits=True)
    result = generate(engine, request)
    kept = [
        np.log(Sampler(sampling).distribution(row, ())[t]) for row, t in zip(result.logits, result.new_ids, strict=True)
    ]
    np.testing.assert_allclose(result.log_probs, kept, atol=1e-5)
    assert result.cum_log_prob < sum(kept)


def test_figures_tell_how_a_request_ran(engine, reference, generate):
    prompt, expected = reference[0]
    fresh = generate(engine, GenerateRequest(prompt, 3)).figures
    assert fresh.reused_tokens == fresh.accepted_tokens == 0
    assert 0 < fresh.scheduled_ns < fresh.first_token_ns < fresh.last_token_ns
    drafts = [*expected[:2], (expected[2] + 1) % 320]
    verified = generate(engine, GenerateRequest(prompt, 4, drafts)).figures
    assert (verified.reused_tokens, verified.accepted_tokens) == (len(prompt) - 1, 2)


def test_verification_draws_no_further_than_the_first_rejection_and_applies_the_rules_once(
    engine, reference, monkeypatch, generate
):
    prompt, expected = reference[0]
    calls = []
    monkeypatch.setattr(sampling_module, "apply_rules", lambda *args: calls.append(len(args[3])) or apply_rules(*args))
    sampling = Sampling(top_k=1, rules=LogitRules(presence_penalty=1e-6))
    drafts = [expected[0], (expected[1] + 1) % 320, *expected[2:6]]
    result = generate(engine, GenerateRequest(prompt, 7, drafts, sampling=sampling, return_log_probs=True))
    assert result.new_ids == expected[:2]
    assert calls == [len(prompt), len(prompt) + 1]
