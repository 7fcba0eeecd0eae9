"""What would be turned away by the orchestrator never reaches Triton, and places come free whatever ends a request."""

import asyncio

import pytest

from trt_spec.openai.api_error import ApiError
from trt_spec.openai.places import Places

MODEL = "tiny"
PATH = "/v1/chat/completions"


def ask_at_once(make_client, *bodies):
    """The responses to ``bodies``, all sent at once to one application."""

    async def run():
        async with make_client() as client:
            message = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
            return await asyncio.gather(*(client.post(PATH, json=message | body) for body in bodies))

    return asyncio.run(run())


def test_places_are_taken_all_or_none():
    places = Places()
    with places.take(3, 4):
        with pytest.raises(ApiError, match="3 requests are running or waiting, and this deployment takes 4") as caught:
            places.take(2, 4).__enter__()
        assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
        with places.take(1, 4):
            assert places.taken == 4
    assert places.taken == 0
    with pytest.raises(ZeroDivisionError), places.take(4, 4):
        _ = 1 / 0
    assert places.taken == 0


@pytest.mark.parametrize("stream", [True, False])
def test_requests_beyond_the_bound_do_not_reach_triton(make_client, triton, stream):
    triton.most, triton.pause_s = 4, 0.1
    answers = ask_at_once(make_client, *[{"stream": stream}] * 20)
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) == 16 and len(triton.asked) == triton.most_open == 4
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.json()["error"]["code"] for answer in refused} == {"rate_limit_exceeded"}


def test_every_choice_is_a_request(make_client, triton):
    triton.most, triton.pause_s = 4, 0.1
    statuses = [answer.status_code for answer in ask_at_once(make_client, {"n": 3}, {"n": 2}, {"n": 1}, {})]
    assert statuses == [200, 429, 200, 429] and triton.most_open == 4


def test_more_choices_than_there_are_places_are_refused_for_good(chat, triton):
    triton.most = 4
    refused = chat(n=5)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "n"
    assert not triton.asked and chat(n=4).status_code == 200


@pytest.mark.parametrize("end", [["fine"], [ApiError(500, "broken")], ["word", ApiError(500, "broken")]])
@pytest.mark.parametrize("stream", [True, False])
def test_places_come_free_however_an_answer_ends(make_client, triton, end, stream):
    async def one_after_another():
        async with make_client() as client:
            body = {"model": MODEL, "prompt": "x", "n": 2, "stream": stream}
            for triton.pieces in (end, end, ["fine"]):
                answer = await client.post("/v1/completions", json=body)
        return answer

    triton.most = 2
    assert asyncio.run(one_after_another()).status_code == 200
