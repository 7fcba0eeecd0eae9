"""Public clients, as they are: OpenAI's own, LangChain's and LlamaIndex's."""

import openai
import pytest
from langchain_openai import ChatOpenAI
from langchain_openai import OpenAI as LangChainOpenAI
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

from trt_spec.verify.client import TritonClient

MODEL = "tiny-pair"
HI = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
GREEDY = {"temperature": 0.0, "max_tokens": 24}
# What the template of the tiny tokenizer makes of HI.
PROMPT = "<|bos|><|system|>Be kind.<|end|><|user|>hello<|end|><|assistant|>"


@pytest.fixture(scope="module")
def client(endpoint):
    with openai.OpenAI(base_url=f"{endpoint.openai_url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def expected(endpoint):
    """expected(prompt, max_tokens=24) -> the orchestrator's own greedy answer."""
    with TritonClient(endpoint.grpc_url, deadline_s=60) as triton:
        yield lambda prompt, max_tokens=24: triton.infer(prompt, max_tokens, None, label=prompt)


def test_openai_chat(client, expected):
    answer = client.chat.completions.create(model=MODEL, messages=HI, **GREEDY)
    (choice,) = answer.choices
    assert choice.message.content == expected(PROMPT).text
    assert (choice.message.role, choice.finish_reason, answer.model) == ("assistant", "length", MODEL)
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24


def test_openai_chat_stream_with_usage(client, expected):
    stream = client.chat.completions.create(
        model=MODEL, messages=HI, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected(PROMPT).text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]
    assert last.choices == [] and last.usage.completion_tokens == 24
    assert len(chunks) > 4


def test_openais_streaming_helper(client, expected):
    whole = expected(PROMPT).text
    stop = whole[10:12]
    with client.chat.completions.stream(model=MODEL, messages=HI, stop=stop, **GREEDY) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()  # raises for an answer that was cut
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == whole[: whole.index(stop)]


def test_openai_completions(client, expected):
    answer = client.completions.create(model=MODEL, prompt=["hello", "def add(a, b):"], n=2, **GREEDY)
    texts = [choice.text for choice in answer.choices]
    assert texts == [expected(prompt).text for prompt in ("hello", "hello", "def add(a, b):", "def add(a, b):")]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    streamed = client.completions.create(model=MODEL, prompt="hello", stream=True, **GREEDY)
    assert "".join(chunk.choices[0].text for chunk in streamed) == expected("hello").text


def test_openai_log_probs_are_the_orchestrators(client, expected):
    answer = client.chat.completions.create(model=MODEL, messages=HI, logprobs=True, **GREEDY)
    told = answer.choices[0].logprobs.content
    assert len(told) == 24 and all(entry.logprob <= 0.0 for entry in told)
    joined = bytes(byte for entry in told for byte in entry.bytes)
    assert joined.decode("utf-8", "ignore") == answer.choices[0].message.content.replace("\ufffd", "")
    old = client.completions.create(model=MODEL, prompt=PROMPT, logprobs=0, **GREEDY).choices[0].logprobs
    assert old.token_logprobs == pytest.approx([entry.logprob for entry in told], abs=1e-3)
    assert old.tokens == [entry.token for entry in told]
    assert expected(PROMPT).output_ids and len(old.text_offset) == 24


def test_openai_models(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "trtspec"
    with pytest.raises(openai.NotFoundError, match="serves tiny-pair"):
        client.models.retrieve("gpt-4o")


def test_openais_errors_are_its_own(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4o", messages=HI)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="top_logprobs is not supported"):
        client.chat.completions.create(model=MODEL, messages=HI, logprobs=True, top_logprobs=5)


def test_openai_speculation_on_request(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=HI, extra_body={"speculation": True, "num_draft_tokens": 4}, **GREEDY
    )
    (told,) = answer.model_extra["speculation"]
    assert told["total_draft_tokens"] == sum(told["round_draft_tokens"]) > 0
    assert told["draft_rounds"] == len(told["round_draft_tokens"])
    alone = client.chat.completions.create(
        model=MODEL, messages=HI, extra_body={"speculation": True, "num_draft_tokens": 0}, **GREEDY
    )
    assert alone.model_extra["speculation"][0]["total_draft_tokens"] == 0
    assert alone.choices[0].message.content == answer.choices[0].message.content


@pytest.fixture
def langchain(endpoint):
    return {"model": MODEL, "base_url": f"{endpoint.openai_url}/v1", "api_key": "none", "max_retries": 0, **GREEDY}


def test_langchain(langchain, expected):
    chat = ChatOpenAI(**langchain)
    messages = [("system", "Be kind."), ("human", "hello")]
    answer = chat.invoke(messages)
    assert answer.content == expected(PROMPT).text
    assert answer.usage_metadata["output_tokens"] == 24
    assert answer.response_metadata["finish_reason"] == "length"
    assert "".join(chunk.content for chunk in chat.stream(messages)) == expected(PROMPT).text
    assert LangChainOpenAI(**langchain).invoke("hello") == expected("hello").text


@pytest.mark.parametrize("is_chat", [True, False])
def test_llama_index(endpoint, expected, is_chat):
    llm = OpenAILike(
        model=MODEL,
        api_base=f"{endpoint.openai_url}/v1",
        api_key="none",
        is_chat_model=is_chat,
        max_retries=0,
        **GREEDY,
    )
    if not is_chat:
        assert llm.complete("hello").text == expected("hello").text
        assert "".join(chunk.delta for chunk in llm.stream_complete("hello")) == expected("hello").text
        return
    messages = [ChatMessage(role="system", content="Be kind."), ChatMessage(role="user", content="hello")]
    assert llm.chat(messages).message.content == expected(PROMPT).text
    assert "".join(chunk.delta or "" for chunk in llm.stream_chat(messages)) == expected(PROMPT).text
