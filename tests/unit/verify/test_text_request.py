"""The requests of our own client, and the known failures that they answer."""

from __future__ import annotations

import numpy as np
import pytest

from trt_spec.errors import SpecError
from trt_spec.serve.stopping import pack_stop_words
from trt_spec.verify.tensors import ModelInterface, build_inputs
from trt_spec.verify.text_request import Controls, text_values

INPUTS = {
    "text_input": "BYTES",
    "max_tokens": "INT32",
    "stream": "BOOL",
    "stop_words": "BYTES",
    "end_id": "INT32",
    "top_k": "INT32",
    "top_p": "FP32",
    "temperature": "FP32",
    "num_draft_tokens": "INT32",
    "random_seed": "UINT64",
    "min_length": "INT32",
}


def interface(*, decoupled: bool = False, **dtypes: str) -> ModelInterface:
    return ModelInterface("some_model", {**INPUTS, **dtypes}, frozenset(), {}, decoupled)


def values(controls: Controls = Controls(), *, stream: bool = False, decoupled: bool = False) -> dict:  # noqa: B008
    return text_values(interface(decoupled=decoupled), "hello", 9, 4, stream=stream, controls=controls)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("bc", ["bc"]),
        (["a", "bc"], ["a", "bc"]),
        ("", None),
        ([], None),
        (["", "a"], ["a"]),
        (("안", "b"), ["안", "b"]),
    ],
)
def test_b041_stop_words_are_one_text_or_several(given, sent) -> None:
    assert values(Controls(stop_words=given)).get("stop_words") == sent
    tensors = {tensor.name(): tensor for tensor in build_inputs(interface(), values(Controls(stop_words=given)))}
    assert ("stop_words" in tensors) == (sent is not None)
    if sent:
        assert tensors["stop_words"].shape() == [1, len(sent)]


@pytest.mark.parametrize("given", [[1], [None], [["a"]]])
def test_b041_what_is_no_text_is_refused(given) -> None:
    with pytest.raises(SpecError, match="expected a text or a list of texts"):
        Controls(stop_words=given)


def test_b041_engines_get_ids_and_the_end_of_each_word() -> None:
    assert pack_stop_words(((1,), (2, 3))).tolist() == [[1, 2, 3], [1, 3, -1]]


def test_b085_a_stream_from_a_model_of_one_response_is_not_sent() -> None:
    assert values(stream=True, decoupled=True)["stream"] is True
    with pytest.raises(SpecError, match="some_model gives one response") as caught:
        values(stream=True)
    assert "ensemble" in str(caught.value.remedy)


def test_b093_data_types_are_the_servers() -> None:
    for dtype, numpy_dtype in (("UINT32", np.uint32), ("INT32", np.int32), ("INT64", np.int64)):
        served = interface(end_id=dtype)
        sent = text_values(served, "hello", 9, None, stream=False, controls=Controls(end_id=7))
        (tensor,) = [tensor for tensor in build_inputs(served, sent) if tensor.name() == "end_id"]
        assert tensor.datatype() == dtype
        assert np.frombuffer(tensor._get_content(), numpy_dtype).tolist() == [7]


def test_b093_names_are_the_servers() -> None:
    sent = values(Controls(min_tokens=3, seed=5))
    assert (sent["random_seed"], sent["min_length"]) == (5, 3)
    assert not {"seed", "min_tokens"} & sent.keys()


@pytest.mark.parametrize("top_p", [100.0, -0.5, 0.0, float("nan")])
def test_b094_top_p_out_of_range_is_not_sent(top_p) -> None:
    with pytest.raises(SpecError, match=r"top_p is .*, expected more than 0, at most 1"):
        Controls(top_p=top_p)


@pytest.mark.parametrize(
    ("controls", "sent"),
    [
        (Controls(), {"top_k": 1}),
        (Controls(temperature=0.0), {"top_k": 1}),
        (Controls(temperature=0.7), {"temperature": 0.7, "top_p": 1.0}),
        (Controls(temperature=0.7, top_k=5), {"temperature": 0.7, "top_k": 5}),
        (Controls(top_p=0.9), {"top_p": 0.9}),
    ],
)
def test_b094_a_temperature_never_goes_alone(controls, sent) -> None:
    assert {
        name: value for name, value in values(controls).items() if name in ("temperature", "top_k", "top_p")
    } == sent


def test_b115_a_request_with_drafts_says_that_it_does_not_stream() -> None:
    sent = values()
    assert sent["num_draft_tokens"] == 4
    assert sent["stream"] is False
