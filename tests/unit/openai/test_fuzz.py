"""Bodies that nobody thought of: every answer is one of the API's, and none shows the inside."""

import asyncio
import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_spec.openai.request_fields import NOTHING, ChatRequest, CompletionRequest

MODEL = "tiny"
PATHS = {"/v1/chat/completions": ChatRequest, "/v1/completions": CompletionRequest}

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TOKENS = st.integers(-1, 400)
CONTENT = st.text(max_size=12) | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5)}))
CALL = st.fixed_dictionaries(
    {
        "id": st.text(max_size=3),
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": st.text(max_size=3), "arguments": st.sampled_from(["{}", "[", "1"])}
        ),
    }
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "robot"])},
    optional={
        "content": CONTENT | VALUES,
        "tool_calls": st.lists(CALL, max_size=2),
        "tool_call_id": st.text(max_size=3),
    },
)
LIKELY = {
    "messages": st.lists(MESSAGE, max_size=4),
    "prompt": st.text(max_size=12) | st.lists(st.text(max_size=4), max_size=3) | st.lists(TOKENS, max_size=4),
    "max_tokens": st.integers(0, 70),
    "n": st.integers(0, 3),
    "stream": st.booleans(),
    "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=3),
    "logit_bias": st.dictionaries(TOKENS.map(str), st.floats(-101, 101), max_size=3),
    "stop_token_ids": st.lists(TOKENS, max_size=2),
    "temperature": st.floats(-0.1, 2.1),
    "logprobs": st.booleans() | st.integers(0, 2),
    "tools": st.lists(
        st.fixed_dictionaries({"type": st.just("function"), "function": st.dictionaries(st.text(), VALUES)})
    ),
}


@st.composite
def bodies(draw, kind):
    names = [*kind.model_fields, *NOTHING]
    asked = {"prompt": "x"} if kind is CompletionRequest else {"messages": [{"role": "user", "content": "x"}]}
    body = {"model": MODEL, **asked}
    for name in draw(st.lists(st.sampled_from(names), max_size=6, unique=True)):
        body[name] = draw(
            st.one_of(LIKELY.get(name, VALUES), VALUES) if draw(st.booleans()) else LIKELY.get(name, VALUES)
        )
    return body


@pytest.mark.parametrize("path", PATHS)
def test_no_body_breaks_it(make_client, path):
    with asyncio.Runner() as runner:
        client = make_client()
        seen = set()

        # The same bodies every time, so that the last line holds or does not.
        @settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(bodies(PATHS[path]))
        def fuzz(body):
            content = json.dumps(body).encode()
            answer = runner.run(client.post(path, content=content))
            seen.add(answer.status_code)
            check(answer)

        fuzz()
        runner.run(client.aclose())
    assert {200, 400} <= seen


def check(answer: httpx.Response) -> None:
    assert answer.status_code in (200, 400, 404), answer.text
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert len(answer.text) < 2000


@pytest.mark.parametrize("path", PATHS)
def test_no_bytes_break_it(make_client, path):
    with asyncio.Runner() as runner:
        client = make_client()

        @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | VALUES.map(lambda v: json.dumps(v).encode())
        )
        def fuzz(content):
            check(runner.run(client.post(path, content=content)))

        fuzz()
        runner.run(client.aclose())
