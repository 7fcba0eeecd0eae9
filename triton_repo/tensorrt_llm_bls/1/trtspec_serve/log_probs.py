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


def log_prob(adjusted: NDArray[np.float32], token: int) -> float:
    """Log-probability of ``token`` under the softmax of ``adjusted`` [vocab_size]."""
    return float(adjusted[token]) - _log_sum_exp(adjusted)


def top_k_log_mass(adjusted: NDArray[np.float32], top_k: int) -> float:
    """Log of the probability that the ``top_k`` likeliest tokens have together."""
    if not 0 < top_k < len(adjusted):
        return 0.0
    return _log_sum_exp(np.partition(adjusted, -top_k)[-top_k:]) - _log_sum_exp(adjusted)


def _log_sum_exp(values: NDArray[np.float32]) -> float:
    largest = float(values.max())
    return largest + math.log(float(np.exp(values.astype(np.float64) - largest).sum()))
