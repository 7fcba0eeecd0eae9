from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.deploy.pbtxt import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    PbtxtError,
    Tensor,
    parse_pbtxt,
    render_pbtxt,
)
from trt_spec.errors import EnvironmentMissing, SpecError

TENSORS = (
    Tensor("input_ids", "INT32", (-1,), optional=True, ragged=True),
    Tensor("input_lengths", "INT32", (1,), reshape=()),
    Tensor("video", "UINT8", (-1, -1, 3), reshape=(-1, 3)),
)


def make_config(**changes: object) -> ModelConfig:
    values: dict[str, object] = {
        "name": "m",
        "backend": "python",
        "max_batch_size": 8,
        "inputs": TENSORS,
        "outputs": (Tensor("y", "STRING", (-1,)), Tensor("z", "FP32", (1,), reshape=())),
        "parameters": {"a": "1", "empty": ""},
        "decoupled": True,
        "instance_group": InstanceGroup(2, "KIND_CPU"),
        "dynamic_batching": DynamicBatching((4, 8), 100, 32),
    }
    return ModelConfig(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "config",
    [
        make_config(),
        make_config(decoupled=False),
        make_config(dynamic_batching=None, instance_group=None, parameters={}),
        make_config(dynamic_batching=DynamicBatching()),
        make_config(inputs=(), outputs=()),
    ],
)
def test_round_trip(config: ModelConfig) -> None:
    assert parse_pbtxt(render_pbtxt(config)) == config


def test_max_batch_size_zero_is_written() -> None:
    text = render_pbtxt(make_config(max_batch_size=0))
    assert text.count("max_batch_size: 0") == 1
    assert parse_pbtxt(text).max_batch_size == 0
    assert "max_batch_size: 8" in render_pbtxt(make_config())


@pytest.mark.parametrize(
    "value", ["a b", "1,2", "k:v", "it's", 'say "x"', "back\\slash \\g", "${engine_dir}", "한국어 🙂", "two\nlines\t"]
)
def test_awkward_values_survive(value: str) -> None:
    config = make_config(parameters={"gpt_model_path": value})
    assert parse_pbtxt(render_pbtxt(config)).parameters == {"gpt_model_path": value}


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_survives(value: str, key: str) -> None:
    assert parse_pbtxt(render_pbtxt(make_config(parameters={key: value}))).parameters == {key: value}


def test_a_left_over_placeholder_does_not_parse() -> None:
    with pytest.raises(SpecError, match=r"repo/m/config\.pbtxt .*1:17"):
        parse_pbtxt("max_batch_size: ${triton_max_batch_size}", "repo/m/config.pbtxt")


@pytest.mark.parametrize("changes", [{"max_batch_size": 1 << 40}, {"inputs": (Tensor("x", "FLOAT", (1,)),)}])
def test_values_outside_the_schema_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="'m'"):
        render_pbtxt(make_config(**changes))


def test_without_tritonclient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tritonclient.grpc", None)
    with pytest.raises(EnvironmentMissing, match=r"trtspec\[local\]"):
        render_pbtxt(make_config())


def test_a_fault_has_its_line_and_reason() -> None:
    with pytest.raises(PbtxtError) as caught:
        parse_pbtxt('name: "m"\n\nmax_batchsize: 4\n')
    assert caught.value.line == 3
    assert "max_batchsize" in caught.value.reason
