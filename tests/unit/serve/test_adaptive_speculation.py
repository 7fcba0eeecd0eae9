"""The loop under the adaptive length: many requests that learn together, and every answer is the target's own."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.draft_length import SharedCosts
from trt_spec.serve.rounds import RoundCounts, Surroundings
from trt_spec.serve.speculate import speculate
from trt_spec.serve.token_answer import SpeculationRequest

from .test_speculate import FunctionEngines, hashed

SOURCES = st.sampled_from([frozenset({"model"}), frozenset({"ngram"}), frozenset({"model", "ngram"})])


async def collect(engines, request, policy, around):
    counts = RoundCounts()
    ids = [token async for new in speculate(engines, request, counts, policy, around) for token in new]
    return ids, counts


@settings(deadline=None, max_examples=60)
@given(
    salt=st.integers(0, 99),
    agree=st.integers(1, 4),
    sources=SOURCES,
    running=st.integers(1, 8),
    table=st.sampled_from(["4", "0", "6,0"]),
    ahead=st.booleans(),
    streams=st.booleans(),
)
def test_answers_are_the_targets_own(salt, agree, sources, running, table, ahead, streams):
    target = hashed(salt, 5)
    engines = FunctionEngines(target, lambda ids: target(ids) if len(ids) % agree else 1)
    shared = SharedCosts(table, allow_ahead=ahead)
    around = Surroundings(sources=sources, running=lambda: running)
    for prompt in ([1, 2], [3], [1, 2, 3, 4]):
        request = SpeculationRequest(prompt, 60, draft_len=6, streams=streams, fixed_len=False)
        ids, counts = asyncio.run(collect(engines, request, shared.follow(sources, 6, streams), around))
        wanted = list(prompt)
        for _ in range(60):
            wanted.append(target(wanted))
        assert ids == wanted[len(prompt) :]
        assert all(accepted <= drafted <= 6 for drafted, accepted in zip(counts.drafted, counts.accepted, strict=True))
