import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.call_tensors import CallTensors
from trt_spec.serve.engine_calls import EngineCall
from trt_spec.serve.engine_inputs import EngineDialect
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.sampling import Sampling


class Tensor:
    def __init__(self, name, value):
        self.name, self.value = name, value


TRITON = types.SimpleNamespace(Tensor=Tensor)
VOCABULARY = 12
GREEDY = Sampling()


def tensors(takes_retention=True):
    return CallTensors(TRITON, EngineDialect("seed", takes_retention))


def call(ids, max_new_tokens=3, sampling=GREEDY, **more):
    return EngineCall(ids, max_new_tokens, sampling, **{"end_id": None, "stop_words": ()} | more)


def ask(made, engine, asked, *, crowded=False, switch=None):
    found = made.of(engine, asked, vocab_size=VOCABULARY, crowded=crowded, switch=switch)
    by_name = {tensor.name: tensor for tensor in found}
    assert len(by_name) == len(found)
    return by_name


IDS = [np.arange(length, dtype=np.int32) for length in range(1, 5)]
RULES = [
    LogitRules(),
    LogitRules(presence_penalty=0.5),
    LogitRules(min_tokens=2, bad_words=((3,),)),
    LogitRules(embedding_bias=np.ones(VOCABULARY, np.float32)),
]
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([0.0, 0.9]),
    seed=st.integers(0, 3),
    rules=st.sampled_from(RULES),
)
calls = st.builds(
    EngineCall,
    ids=st.sampled_from(IDS),
    max_new_tokens=st.integers(1, 2),
    sampling=samplings,
    end_id=st.sampled_from([None, 2]),
    stop_words=st.sampled_from([(), ((1, 2),)]),
    draft_ids=st.lists(st.integers(0, 9), max_size=2),
)


@settings(deadline=None)
@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from(["target", "draft"]), calls, st.booleans(), st.sampled_from([None, "return_log_probs"])
        ),
        max_size=8,
    )
)
def test_what_is_kept_never_changes_what_is_sent(asked):
    kept = tensors()
    for engine, each, crowded, switch in asked:
        sent = ask(kept, engine, each, crowded=crowded, switch=switch)
        fresh = ask(tensors(), engine, each, crowded=crowded, switch=switch)
        assert sent.keys() == fresh.keys()
        for name, tensor in fresh.items():
            np.testing.assert_array_equal(sent[name].value, tensor.value)
            assert sent[name].value.dtype == tensor.value.dtype


def test_what_lasts_is_made_once():
    made = tensors()
    first, second = (ask(made, "target", call(ids, draft_ids=[4])) for ids in IDS[:2])
    same = {name for name in first if first[name] is second[name]}
    assert same == {"request_output_len", "exclude_input_in_output", "runtime_top_k"}


def test_another_length_is_all_that_another_length_changes():
    made = tensors()
    first, second = (ask(made, "draft", call(IDS[0], length)) for length in (2, 3))
    assert {name for name in first if first[name] is not second[name]} == {"request_output_len"}


def test_company_changes_nothing_for_an_engine_without_retention():
    made = tensors(takes_retention=False)
    first, second = (ask(made, "draft", call(IDS[0]), crowded=crowded) for crowded in (False, True))
    assert first == second


def test_a_seed_of_its_own_for_every_call_leaves_the_rest_as_it_is():
    made = tensors()
    first, second = (ask(made, "target", call(IDS[0], sampling=Sampling(top_p=0.9, seed=seed))) for seed in (1, 2))
    assert first["runtime_top_p"] is second["runtime_top_p"]
    assert [sent["seed"].value.item() for sent in (first, second)] == [1, 2]


@pytest.mark.parametrize("crowded", [False, True])
def test_the_target_is_sent_the_text_that_its_draft_was_asked_behind(crowded):
    made = tensors()
    drafted = ask(made, "draft", call(IDS[2]), crowded=crowded)
    verified = ask(made, "target", call(IDS[2], draft_ids=[4]), crowded=crowded)
    shared = {name for name in drafted if drafted[name] is verified[name]}
    ends = {"retention_token_range_ends"} if crowded else set()
    assert shared == {"input_ids", "input_lengths"} | ends


def test_a_text_that_may_still_be_under_way_is_not_sent_again():
    made = tensors()
    drafted = ask(made, "draft", call(IDS[2]))
    made.forget_text()
    verified = ask(made, "target", call(IDS[2]))
    assert verified["input_ids"] is not drafted["input_ids"]
    np.testing.assert_array_equal(verified["input_ids"].value, drafted["input_ids"].value)
