"""Requests to the application: what is sent on, what is refused and how, and who may ask."""

import asyncio
import json
import shutil

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from trt_spec.openai.api_error import ApiError, busy

MODEL = "tiny"


def refusal(answer, status=400):
    """The error object of a refused request, checked for its form."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert "Traceback" not in answer.text
    return error


def events(answer):
    """The objects of a stream of server-sent events, checked for its form."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    *lines, end = [block for block in answer.text.split("\n\n") if block]
    assert end == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_an_answer_has_the_published_form(chat, complete):
    for fields in ({}, {"n": 2}, {"logprobs": True}, {"speculation": True}):
        answer = chat(max_tokens=11, **fields)
        checked = ChatCompletion.model_validate_json(answer.content, strict=True)
        assert checked.choices[0].message.content == "Hello you."
        assert checked.usage.completion_tokens == 10 * len(checked.choices)
    checked = Completion.model_validate_json(complete(max_tokens=11, logprobs=0).content, strict=True)
    assert (checked.choices[0].text, checked.choices[0].finish_reason) == ("Hello you.", "stop")
    assert checked.choices[0].logprobs.token_logprobs == [-0.5] * 10


def test_a_stream_has_the_published_form(chat, complete):
    told = events(chat(stream=True, stream_options={"include_usage": True}, logprobs=True, n=2))
    chunks = [ChatCompletionChunk.model_validate(chunk, strict=False) for chunk in told]
    for index in (0, 1):
        of_choice = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(choice.delta.content or "" for choice in of_choice) == "Hello you."
        assert [choice.finish_reason for choice in of_choice][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == 20 and not chunks[-1].choices
    assert len({chunk.id for chunk in chunks}) == 1
    *pieces, last = events(complete(stream=True, echo=True))
    assert Completion.model_validate(last).choices[0].finish_reason == "stop"
    for piece in pieces:  # the published type knows no chunk but the last one; OpenAI sends null as well
        assert piece["choices"][0]["finish_reason"] is None
        Completion.model_validate({**piece, "choices": [{**piece["choices"][0], "finish_reason": "stop"}]})
    assert "".join(piece["choices"][0]["text"] for piece in [*pieces, last]) == "helloHello you."


SENT = [
    ({}, {"temperature": 1.0, "top_p": 1.0, "stream": False, "exclude_input_in_output": True}),
    ({"temperature": 0}, {"top_k": 1}),
    ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
    ({"top_p": 0}, {"top_k": 1}),
    ({"top_k": 5, "top_p": 0.9}, {"top_k": 5, "top_p": 0.9}),
    ({"top_k": -1}, {"top_p": 1.0}),
    ({"seed": 5}, {"seed": 5}),
    ({"seed": -1}, {"seed": 2**64 - 1}),
    ({"presence_penalty": 1, "frequency_penalty": -0.5}, {"presence_penalty": 1, "frequency_penalty": -0.5}),
    ({"repetition_penalty": 1.2, "min_tokens": 3}, {"repetition_penalty": 1.2, "min_tokens": 3}),
    ({"stop": "a"}, {"stop_words": ["a"]}),
    ({"stop": ["a", "b"], "stop_token_ids": [315]}, {"stop_words": ["a", "b", "<|eos|>"]}),
    ({"ignore_eos": True}, {"end_id": -1}),
    ({"num_draft_tokens": 0}, {"num_draft_tokens": 0}),
    ({"stream": True}, {"stream": True}),
    ({"max_tokens": 7}, {"max_tokens": 7}),
    ({"max_completion_tokens": 7}, {"max_tokens": 7}),
    ({"user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "best_of": 1}, {}),
    ({"response_format": {"type": "text"}, "parallel_tool_calls": True, "modalities": ["text"]}, {}),
]


@pytest.mark.parametrize(("fields", "expected"), SENT)
def test_what_is_sent_on(chat, triton, tiny, fields, expected):
    config = json.loads((tiny / "tokenizer" / "tokenizer_config.json").read_text())
    vocabulary = json.loads((tiny / "tokenizer" / "tokenizer.json").read_text())
    end = next(token["id"] for token in vocabulary["added_tokens"] if token["content"] == config["eos_token"])
    if "stop_token_ids" in fields:
        fields = {**fields, "stop_token_ids": [end]}
    assert chat(**fields).status_code == 200
    ((_, sent),) = triton.asked
    assert expected.items() <= sent.items()
    assert sent["text_input"] == "<|bos|><|user|>hello<|end|><|assistant|>"
    if expected.get("top_k") == 1:
        assert "temperature" not in sent


def test_choices_have_seeds_of_their_own_and_ids_too(chat, triton):
    assert chat(n=3, seed=5).status_code == 200
    seeds = [values["seed"] for _, values in triton.asked]
    assert seeds[0] == 5 and len(set(seeds)) == 3
    assert len({request_id for request_id, _ in triton.asked}) == 3


def test_an_answer_may_be_as_long_as_there_is_room(chat, complete, triton):
    chat("a" * 30)
    prompt_tokens = 30 + 4
    assert triton.asked[-1][1]["max_tokens"] == min(60, 128 - 4 - prompt_tokens)
    complete()
    assert triton.asked[-1][1]["max_tokens"] == 16


def user(text):
    return {"role": "user", "content": text}


BAD_CHATS = {
    "unknown model": ({"model": "gpt-4o"}, 404, "model_not_found", "serves tiny"),
    "no messages": ({"messages": []}, 400, "invalid_value", "messages"),
    "messages of text": ({"messages": "hi"}, 400, "invalid_value", "messages"),
    "invalid role": ({"messages": [{"role": "robot", "content": "x"}]}, 400, "invalid_value", "messages.0.role"),
    "no content": ({"messages": [{"role": "user"}]}, 400, "missing_required_parameter", "messages.0.content"),
    "no content parts": ({"messages": [{"role": "user", "content": []}]}, 400, "missing_required_parameter", "content"),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        400,
        None,
        "messages.0",
    ),
    "tools of a user": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": "x",
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                }
            ]
        },
        400,
        None,
        "only an assistant",
    ),
    "arguments that are no JSON": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}],
                }
            ]
        },
        400,
        "invalid_value",
        "not the JSON of an object",
    ),
    "a tool's answer to nothing": (
        {"messages": [{"role": "tool", "content": "x"}]},
        400,
        "missing_required_parameter",
        "tool_call_id",
    ),
    "a message too long": (
        {"messages": [{"role": "user", "content": "a" * 100}]},
        400,
        "context_length_exceeded",
        "takes",
    ),
    "a book": ({"messages": [{"role": "user", "content": "a" * 10**6}]}, 400, "context_length_exceeded", "characters"),
    "too many messages": (
        {"messages": [{"role": "user", "content": ""}] * 5000},
        400,
        None,
        "5000 messages, expected at most 4096",
    ),
    "too long an answer": ({"max_tokens": 61}, 400, "context_length_exceeded", "room for 60"),
    "no answer": ({"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
    "two lengths": ({"max_tokens": 5, "max_completion_tokens": 6}, 400, None, "two names"),
    "temperature too high": ({"temperature": 3}, 400, "invalid_value", "temperature"),
    "temperature of text": ({"temperature": "hot"}, 400, "invalid_value", "temperature"),
    "a flag for a number": ({"max_tokens": True}, 400, "invalid_value", "max_tokens"),
    "top_p": ({"top_p": 1.1}, 400, "invalid_value", "top_p"),
    "min_p": ({"min_p": 0.1}, 400, "unsupported_parameter", "min_p is not supported"),
    "JSON mode": ({"response_format": {"type": "json_object"}}, 400, "unsupported_parameter", "response_format"),
    "forced tools": ({"tool_choice": "required"}, 400, "invalid_value", "tool_choice"),
    "top log-probs": ({"logprobs": True, "top_logprobs": 2}, 400, "unsupported_parameter", "top_logprobs"),
    "too many choices": ({"n": 17}, 400, None, "at most 16"),
    "misspelt": ({"temprature": 1}, 400, "unknown_parameter", "did you mean temperature?"),
    "usage without a stream": ({"stream_options": {"include_usage": True}}, 400, None, "stream true only"),
    "an empty stop": ({"stop": ""}, 400, "invalid_value", "stop"),
    "too many stops": ({"stop": ["a"] * 17}, 400, "invalid_value", "stop"),
    "a bias of text": ({"logit_bias": {"the": 1}}, 400, None, "no token id"),
    "a bias of a token that no text makes": ({"logit_bias": {"99999": 1}}, 400, None, "token 99999"),
    "a bias too large": ({"logit_bias": {"5": 101}}, 400, "invalid_value", "logit_bias"),
    "a stop token that is text": ({"stop_token_ids": [40]}, 400, None, "no special token"),
    "a minimum above the maximum": ({"min_tokens": 9, "max_tokens": 8}, 400, None, "min_tokens is 9"),
    "an unknown template": ({"chat_template": "poem"}, 400, None, "expected one of default"),
    "template variables of ours": ({"chat_template_kwargs": {"messages": []}}, 400, None, "sets messages"),
}


@pytest.mark.parametrize("fault", BAD_CHATS)
def test_a_bad_chat_is_refused_by_name(chat, triton, fault):
    fields, status, code, words = BAD_CHATS[fault]
    error = refusal(chat(**fields), status)
    assert words in error["message"] and len(error["message"]) < 500
    assert code is None or error["code"] == code
    assert not triton.asked
    assert chat().status_code == 200


BAD_COMPLETIONS = {
    "no prompt": ({"prompt": ""}, "empty"),
    "no prompts": ({"prompt": []}, "empty"),
    "a number": ({"prompt": 5}, "prompt"),
    "a mixture": ({"prompt": ["a", 5]}, "prompt"),
    "too many": ({"prompt": ["a"] * 9, "n": 2}, "at most 16 choices"),
    "ids that no text makes": ({"prompt": [99999, 5]}, "not what this model's tokenizer makes"),
    "a negative id": ({"prompt": [-1]}, "prompt"),
    "a suffix": ({"suffix": "x"}, "suffix is not supported"),
    "alternatives": ({"logprobs": 1}, "logprobs above 0"),
    "log-probs of the prompt": ({"logprobs": 0, "echo": True}, "echo with logprobs"),
    "best of": ({"best_of": 3}, "best_of is not supported"),
}


@pytest.mark.parametrize("fault", BAD_COMPLETIONS)
def test_a_bad_completion_is_refused_by_name(complete, fault):
    fields, words = BAD_COMPLETIONS[fault]
    assert words in refusal(complete(**fields))["message"]
    assert complete().status_code == 200


BAD_BODIES = {
    "nothing": b"",
    "half of it": b'{"model": ',
    "no object": b"[1]",
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "a lone surrogate": b'{"model": "tiny", "prompt": "\\ud800"}',
    "not a number": b'{"model": "tiny", "prompt": "x", "temperature": NaN}',
    "infinite": b'{"model": "tiny", "prompt": "x", "temperature": 1e999}',
    "deep": b"[" * 100_000,
    "a huge number": b'{"model": "tiny", "prompt": "x", "seed": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("fault", BAD_BODIES)
def test_a_bad_body_is_refused(ask, complete, fault):
    refusal(ask("/v1/completions", BAD_BODIES[fault]))
    assert complete().status_code == 200


def test_bodies_are_bounded(ask):
    assert refusal(ask("/v1/completions", b"x" * 2000, max_body_bytes=1000), 413)["code"] == "request_too_large"

    async def endless(client):
        async def parts():
            while True:
                yield b" " * 100

        return await client.post("/v1/completions", content=parts())

    assert run(ask, endless, max_body_bytes=1000).status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for(ask):
    async def slow(client):
        async def parts():
            yield b"{"
            await asyncio.sleep(30)

        return await client.post("/v1/completions", content=parts())

    assert refusal(run(ask, slow, body_timeout_s=0.05), 408)["code"] == "timeout"


def run(ask, send, **settings):
    """What a function of a client returns."""
    make_client = ask.__closure__[0].cell_contents

    async def work():
        async with make_client(**settings) as client:
            return await send(client)

    return asyncio.run(work())


def test_unknown_paths_and_methods(ask):
    assert "Not Found" in refusal(ask("/v1/embeddings", {}), 404)["message"]
    assert "Method Not Allowed" in refusal(ask("/v1/models", {}), 405)["message"]


KEYS = ("secret-1", "schlüssel-2")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", "secret-1", "Basic secret-1", "Bearer secret-1x"]
)
def test_without_a_key_nobody_is_served(ask, header):
    headers = {} if header is None else {"Authorization": header}
    body = {"model": MODEL, "prompt": "x"}
    answer = ask("/v1/completions", body, headers, api_keys=KEYS)
    assert refusal(answer, 401)["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "secret" not in answer.text


@pytest.mark.parametrize("key", KEYS)
def test_every_key_opens(ask, key):
    headers = {"Authorization": f"Bearer {key}".encode()}
    assert ask("/v1/completions", {"model": MODEL, "prompt": "x"}, headers, api_keys=KEYS).status_code == 200


def test_health_and_metrics_need_no_key(ask, triton):
    async def look(client):
        return [await client.get(path) for path in ("/health", "/metrics", "/v1/models")]

    health, metrics, models = run(ask, look, api_keys=KEYS)
    assert (health.status_code, metrics.status_code, models.status_code) == (200, 200, 401)
    assert "trtspec_openai_requests_in_flight 0.0" in metrics.text
    triton.ready = False
    assert run(ask, look)[0].status_code == 503


def test_other_sites_are_let_in_by_name_only(ask):
    async def preflight(client):
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        return await client.options("/v1/chat/completions", headers=asked)

    assert "access-control-allow-origin" not in run(ask, preflight).headers
    allowed = run(ask, preflight, allowed_origins=("https://app.example",))
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"


def test_a_failure_before_the_first_word_has_its_status(chat, triton):
    triton.pieces = [busy("full")]
    for stream in (False, True):
        answer = chat(stream=stream)
        assert refusal(answer, 429)["code"] == "rate_limit_exceeded"
        assert answer.headers["retry-after"] == "1"


def test_a_failure_behind_it_stands_in_the_stream(chat, triton):
    triton.pieces = ["Hel", ApiError(500, "The engine failed: x", kind="server_error")]
    assert refusal(chat(), 500)["type"] == "server_error"
    *_, last = events(chat(stream=True))
    assert last["error"]["message"] == "The engine failed: x"


def test_what_nobody_foresaw_is_no_traceback(chat, triton, caplog):
    triton.pieces = [RuntimeError("a secret of the inside")]
    error = refusal(chat(), 500)
    assert error["code"] == "internal_error" and "secret" not in error["message"]
    assert "a secret of the inside" in caplog.text
    triton.pieces = ["fine"]
    assert chat().status_code == 200


def test_a_client_that_leaves_ends_the_work(make_client, triton):
    """An application is told of it by ASGI; here by hand."""
    triton.pause_s = 30.0
    body = json.dumps({"model": MODEL, "prompt": "x"}).encode()

    async def leave(stream):
        client = make_client()
        application = client._transport.app
        arrived, sent = asyncio.Queue(), []
        arrived.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
        scope |= {"scheme": "http", "server": ("x", 1), "root_path": "", "http_version": "1.1"}
        work = asyncio.create_task(application(scope, arrived.get, send))
        while not triton.open:
            await asyncio.sleep(0.01)
        arrived.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(work, 5)
        triton.pause_s = 0.0
        return sent, await client.post("/v1/completions", content=body)

    triton.most = 1
    sent, next_answer = asyncio.run(leave(False))
    assert sent == [] and triton.open == 0
    assert next_answer.status_code == 200  # its place is free


def test_a_model_without_a_template_still_completes(ask, tiny, tmp_path):
    folder = tmp_path / "tiny" / "bare"
    folder.mkdir(parents=True)
    shutil.copyfile(tiny / "tokenizer" / "tokenizer.json", folder / "tokenizer.json")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
    error = refusal(ask("/v1/chat/completions", body, tokenizer=folder))
    assert "--chat-template FILE" in error["message"] and error["code"] == "no_chat_template"
    assert ask("/v1/completions", {"model": MODEL, "prompt": "x"}, tokenizer=folder).status_code == 200
