"""Requests that are larger than a whole cache."""

import pytest

from trt_spec.serve.admission import CacheTokens
from trt_spec.serve.cache_need import fit_cache
from trt_spec.serve.token_answer import SpeculationRequest
from trt_spec.serve.triton_request import BadRequest

PLAIN, DRAFT_LEN = 30, 4
REQUEST = SpeculationRequest(prompt_ids=range(10), max_tokens=20, draft_len=DRAFT_LEN)
BOTH = frozenset({"model", "ngram"})


@pytest.mark.parametrize("sources", [{"model"}, {"ngram"}, BOTH])
@pytest.mark.parametrize("cache", [None, CacheTokens(PLAIN + DRAFT_LEN, PLAIN + DRAFT_LEN)])
def test_what_fits_stays_as_it_is(sources, cache):
    fitted, left, need = fit_cache(REQUEST, frozenset(sources), cache)
    assert fitted is REQUEST and left == sources
    assert need == CacheTokens(34, 34 if "model" in sources else 0)


@pytest.mark.parametrize("draft", [1, PLAIN + DRAFT_LEN - 1])
@pytest.mark.parametrize(
    ("sources", "left", "draft_len"), [({"model"}, set(), 0), (BOTH, {"ngram"}, 4), ({"ngram"}, {"ngram"}, 4)]
)
def test_a_small_cache_of_the_draft_costs_its_drafts_alone(draft, sources, left, draft_len):
    fitted, may_draft, need = fit_cache(REQUEST, frozenset(sources), CacheTokens(1000, draft))
    assert (fitted.draft_len, may_draft) == (draft_len, left)
    assert need == CacheTokens(PLAIN + draft_len, 0)


@pytest.mark.parametrize("target", [PLAIN, PLAIN + DRAFT_LEN - 1])
def test_a_target_whose_cache_holds_the_answer_alone_goes_without_drafts(target):
    fitted, _, need = fit_cache(REQUEST, BOTH, CacheTokens(target, 1000))
    assert fitted.draft_len == 0
    assert need == CacheTokens(PLAIN, 0)


def test_an_answer_that_the_target_cannot_cache_is_refused_with_the_numbers():
    with pytest.raises(BadRequest, match=r"10 tokens and max_tokens is 20: .* holds 29 tokens.* may need 30\. Shorten"):
        fit_cache(REQUEST, BOTH, CacheTokens(PLAIN - 1, 1000))
