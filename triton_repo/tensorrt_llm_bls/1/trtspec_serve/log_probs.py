"""Log-probabilities of chosen tokens, as TensorRT-LLM's sampling kernels count them.

They are those of the logits that sampling sees (biased, divided by the temperature, penalised, masked), over the whole
vocabulary. Source: TensorRT-LLM cpp/tensorrt_llm/layers/topKSamplingLayer.cu, whose softmax runs behind the penalty and
ban layers, and kernels/samplingTopKKernels.cu@03961722. There ``normalize_log_probs`` divides output_log_probs of
top-k sampling by the mass of the k candidates, so that greedy decoding (k = 1) always gives 0
(tensorrtllm_backend issue 276), and leaves cum_log_probs alone; top-p sampling without a top-k knows no such division.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def token_log_probs(adjusted: NDArray[np.float32], token: int, top_k: int) -> tuple[float, float]:
    """Log-probabilities under the softmax of ``adjusted`` [vocab_size]: of ``token``, and of the ``top_k`` likeliest
    tokens together (0: top-k was not set, so they are all)."""
    total = _log_sum_exp(adjusted)
    mass = 0.0
    if top_k == 1 < len(adjusted):
        mass = float(adjusted.max()) - total
    elif 0 < top_k < len(adjusted):
        mass = _log_sum_exp(np.partition(adjusted, -top_k)[-top_k:]) - total
    return float(adjusted[token]) - total, mass


def _log_sum_exp(values: NDArray[np.float32]) -> float:
    largest = float(values.max())
    return largest + math.log(float(np.exp(values.astype(np.float64) - largest).sum()))
