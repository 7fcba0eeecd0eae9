"""The calls that continue an answer."""

import numpy as np
import pytest

from trt_spec.serve.engine_calls import NO_DRAFT
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.sampling import Sampling
from trt_spec.serve.token_answer import SpeculationRequest, TokenAnswer

SAMPLING = Sampling(0.7, top_k=5, seed=3, rules=LogitRules(min_tokens=5))


def begun(accept="tokens", sampling=SAMPLING):
    request = SpeculationRequest([7, 8], 20, 4, end_ids=(0, 1), sampling=sampling)
    answer = TokenAnswer(request, accept)
    answer.extend([3, 4])
    return answer


def test_a_call_ahead_counts_what_it_continues_as_said():
    answer = begun()
    now, ahead = answer.draft_call(2), answer.draft_call(3, behind=[5, 6])
    assert (now.ids.tolist(), ahead.ids.tolist()) == ([7, 8, 3, 4], [7, 8, 3, 4, 5, 6])
    assert (now.sampling.rules.min_tokens, ahead.sampling.rules.min_tokens) == (3, 1)


def test_no_two_calls_share_a_seed():
    answer = begun()
    calls = [answer.draft_call(2), answer.draft_call(2, behind=[5, 6]), answer.target_call(3, NO_DRAFT)]
    answer.extend([5, 6])
    calls += [answer.draft_call(2), answer.target_call(3, NO_DRAFT)]
    assert len({call.sampling.seed for call in calls}) == 5


@pytest.mark.parametrize(
    ("accept", "min_tokens", "end_id", "kept_away"),
    [
        ("tokens", 0, 0, 0),
        ("tokens", 4, 0, 2),
        ("logits", 0, None, 0),
        ("fast_logits", 0, None, 0),
        ("logits", 4, 0, 3),
        ("logits", 9, 0, 7),
    ],
)
def test_a_draft_that_is_judged_by_its_logits_does_not_stop_at_its_end_id(accept, min_tokens, end_id, kept_away):
    answer = begun(accept, Sampling(0.7, top_k=5, rules=LogitRules(min_tokens=min_tokens)))
    call = answer.draft_call(3)
    assert (call.accept, call.end_id, call.sampling.rules.min_tokens) == (accept, end_id, kept_away)
    assert answer.target_call(4, NO_DRAFT).end_id == 0


def test_ids_of_a_call_stay_what_they_were():
    answer = begun()
    call = answer.draft_call(2)
    answer.extend([9, 9, 9])
    assert call.ids.tolist() == [7, 8, 3, 4]
    assert call.ids.dtype == np.int32
