"""The draft's logits as the target has to get them: those of the distribution that the draft sampled from.

The target takes q = softmax of what it is sent (TensorRT-LLM externalDraftTokensKernels.cu), so temperature, penalties,
masks, top-k and top-p have to be in it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine_calls import Accept
from .sampling import Sampler, Sampling
from .token_answer import SpeculationRequest


def resolve_accept(deployed: Accept, request: SpeculationRequest) -> Accept:
    """How drafts of this request are accepted, given what the deployment offers.

    Greedy decoding accepts the same tokens either way, and equality needs no logits. An engine with fast logits takes
    no others (executor.h, ExternalDraftTokensConfig), and those are raw: they are what the draft samples from only
    where nothing changes or truncates them.
    """
    sampling = request.sampling
    if sampling.is_greedy or request.uses_draft_logits is False:
        return "tokens"
    return "tokens" if deployed == "fast_logits" and not samples_raw_logits(sampling) else deployed


def samples_raw_logits(sampling: Sampling) -> bool:
    """Whether sampling draws from the softmax of the logits as they are."""
    return sampling.temperature == 1.0 and sampling.rules.is_neutral and sampling.top_k == 0 and sampling.top_p == 1.0


def as_sampled(
    rows: NDArray[Any], sampler: Sampler, prefix: NDArray[np.int32], ids: Sequence[int], width: int
) -> NDArray[Any]:
    """What the target accepts ``ids`` by: [len(ids), width] of the type of ``rows`` [len(ids), draft's vocabulary].

    Log-probabilities, so that the likely tokens keep their precision in half floats; what was ruled out, and what the
    draft does not know, gets the lowest finite number, whose softmax is 0.
    """
    lowest = np.finfo(rows.dtype).min
    sent = np.full((len(ids), width), lowest, rows.dtype)
    said = np.concatenate([prefix, np.array(ids, np.int32)])
    known = min(width, rows.shape[1])
    for index, row in enumerate(rows):
        q = sampler.distribution(row.astype(np.float32), said[: len(prefix) + index])[:known]
        with np.errstate(divide="ignore"):
            sent[index, :known] = np.maximum(np.log(q), lowest)
    return sent
