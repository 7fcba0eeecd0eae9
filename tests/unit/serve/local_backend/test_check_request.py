"""What is refused before anything is computed."""

import numpy as np
import pytest

from trt_spec.serve.local_backend.check_request import check_request
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.sequence import GenerateRequest
from trt_spec.serve.triton_request import BadRequest


@pytest.fixture
def engine(build_tiny_engine):
    return Engine(build_tiny_engine("pair-target"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input_ids": []}, "empty"),
        ({"input_ids": [1] * 125}, "125 tokens"),
        ({"max_new_tokens": 0}, "request_output_len is 0"),
        ({"max_new_tokens": 118}, "expected 1 to 117"),
        ({"draft_ids": [1] * 9, "max_new_tokens": 10}, "max_draft_len 8"),
        ({"input_ids": [1, 320]}, "vocabulary of 320"),
        ({"draft_ids": [-1]}, "vocabulary of 320"),
    ],
)
def test_requests_outside_the_limits_are_refused(engine, changes, words):
    request = GenerateRequest(**{"input_ids": [1, 2, 3], "max_new_tokens": 5, **changes})
    with pytest.raises(BadRequest, match=words):
        check_request(engine, request)


def test_the_longest_request_fits(engine, generate):
    request = GenerateRequest([1, 2, 3], 117)
    check_request(engine, request)
    assert len(generate(engine, request).new_ids) == 117


def test_draft_logits_of_another_shape_are_refused(engine):
    request = GenerateRequest([1, 2, 3], 3, [5, 6], draft_logits=np.zeros((1, 320), np.float32))
    with pytest.raises(BadRequest, match=r"shape \[1, 320\], expected \[2, 320\]"):
        check_request(engine, request)


def test_a_prefix_counts_against_max_num_tokens_although_it_is_cached(build_tiny_engine, generate):
    engine = Engine(build_tiny_engine("pair-target"), max_num_tokens=12)
    prompt, expected = list(range(4, 14)), [1, 2]
    check_request(engine, GenerateRequest(prompt, 4, draft_ids=expected))
    generate(engine, GenerateRequest(prompt, 2))
    with pytest.raises(BadRequest, match="13 tokens with its drafts, more than max_num_tokens 12"):
        check_request(engine, GenerateRequest([*prompt, 1], 3, draft_ids=expected))
    with pytest.raises(BadRequest, match="cached or not"):
        check_request(engine, GenerateRequest(list(range(4, 17)), 1))
