from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from trt_spec.serve.text_request import OrchestratorLimits, read_text_request
from trt_spec.serve.triton_request import BadRequest, TensorReader

LIMITS = OrchestratorLimits(
    max_input_len=20,
    max_output_len=20,
    max_seq_len=50,
    max_draft_len=10,
    max_inflight_requests=1,
    max_queue_requests=1,
)


def read(**values: Any) -> Any:
    """The request with these inputs, for a tokenizer of one token a character."""
    tokenizer = types.SimpleNamespace(
        encode=lambda text: [ord(char) for char in text], encode_word=lambda text: (), end_ids=(0,), longest_token=1
    )
    inputs = {"text_input": np.array([["ab"]], object), "max_tokens": np.array([[4]], np.int32), **values}
    tensors = [
        types.SimpleNamespace(name=lambda name=name: name, as_numpy=lambda values=values: values)
        for name, values in inputs.items()
    ]
    return read_text_request(TensorReader(types.SimpleNamespace(inputs=lambda: tensors)), "", LIMITS, tokenizer)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [0, 1, 10])
def test_b053_as_many_drafted_tokens_as_the_engine_takes(asked: int) -> None:
    assert read(num_draft_tokens=np.array([[asked]], np.int32)).speculation.draft_len == asked


@pytest.mark.parametrize("asked", [11, 1000, -1])
def test_b053_more_drafted_tokens_are_refused_with_both_numbers(asked: int) -> None:
    with pytest.raises(BadRequest, match=rf"num_draft_tokens is {asked}, .*max_draft_len 10"):
        read(num_draft_tokens=np.array([[asked]], np.int32))
