"""Every kind of endpoint, against the stand-in: answers, errors, deadlines, cancellation."""

from __future__ import annotations

import socket
import time

import pytest

from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed
from trt_spec.verify.load.address import resolve_endpoint
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.run import check_answered


def test_answer_is_whole(any_url, llm_server, load, requests_of):
    (result,) = load(resolve_endpoint(any_url), requests_of(max_tokens=5)).requests
    assert (result.outcome, result.text, result.tokens) == ("answered", " w0 w1 w2 w3 w4", 5)
    assert len(result.message_s) == len(result.message_tokens) == 5
    assert list(result.message_s) == sorted(result.message_s) and result.message_s[-1] <= result.latency_s
    assert result.token_source == ("usage" if "/v1" in any_url else "ids")


def test_a_message_may_hold_many_tokens(llm_server, load, requests_of):
    llm_server.behaviour.tokens_per_message = 3
    for url in (llm_server.grpc, llm_server.http):
        (result,) = load(resolve_endpoint(url), requests_of(max_tokens=8)).requests
        assert (result.message_tokens, result.tokens) == ((3, 3, 2), 8)
        assert (result.rounds_drafted, result.rounds_accepted) == ((4, 4, 4), (2, 2, 2))
        assert (result.drafted_tokens, result.accepted_tokens) == (12, 6)
        assert result.output_ids == tuple(range(8))


def test_growing_texts_of_the_llm_api_model_are_not_added_up(llm_server, load, requests_of):
    llm_server.behaviour.llmapi = True
    for url in (llm_server.grpc, llm_server.http):
        (result,) = load(
            resolve_endpoint(url), requests_of(max_tokens=4), count_tokens=lambda t: len(t.split())
        ).requests
        assert (result.text, result.tokens, result.token_source) == ("w0 w1 w2 w3", 4, "tokenizer")
        assert len(result.message_s) == 4 and result.drafted_tokens is None


def test_messages_are_counted_where_nothing_else_is(llm_server, load, requests_of):
    llm_server.behaviour.tells_usage = False
    (result,) = load(resolve_endpoint(f"{llm_server.http}/v1"), requests_of(max_tokens=4)).requests
    assert (result.tokens, result.token_source) == (4, "messages")


def test_b099_the_draft_length_is_sent_with_every_request(llm_server, load, requests_of):
    load(resolve_endpoint(llm_server.grpc), requests_of(3, num_draft_tokens=6))
    assert [raw["num_draft_tokens"] for raw in llm_server.behaviour.requests] == [(6).to_bytes(4, "little")] * 3
    load(resolve_endpoint(llm_server.http), requests_of(1, num_draft_tokens=6))
    assert llm_server.behaviour.requests[-1]["num_draft_tokens"] == 6


def test_a_draft_length_that_the_endpoint_does_not_take_is_no_silent_loss(llm_server, load, requests_of):
    with pytest.raises(SpecError, match="takes no num_draft_tokens"):
        load(resolve_endpoint(f"{llm_server.http}/v1"), requests_of(num_draft_tokens=6))
    llm_server.behaviour.llmapi = True
    with pytest.raises(SpecError, match="takes no num_draft_tokens"):
        load(resolve_endpoint(llm_server.grpc), requests_of(num_draft_tokens=6))


def test_refusal_fails_that_request_alone(any_url, llm_server, load, requests_of):
    llm_server.behaviour.refuse = "say 1"
    results = load(resolve_endpoint(any_url), requests_of(3)).requests
    assert [item.outcome for item in results] == ["answered", "failed", "answered"]
    assert "this prompt is refused" in results[1].error


def test_an_error_in_mid_stream_keeps_what_came(any_url, llm_server, load, requests_of):
    llm_server.behaviour.break_on = "say 0"
    (result,) = load(resolve_endpoint(any_url), requests_of()).requests
    assert result.outcome == "failed" and "the engine broke" in result.error
    assert len(result.message_s) == 1


def test_events_that_are_no_json_are_named(llm_server, load, requests_of):
    llm_server.behaviour.garble_on = "say"
    (result,) = load(resolve_endpoint(f"{llm_server.http}/v1"), requests_of()).requests
    assert result.outcome == "failed" and "no JSON: {nonsense" in result.error


def test_b039_no_answer_ends_at_the_deadline(any_url, llm_server, load, requests_of):
    llm_server.behaviour.hang_on = "say"
    started = time.monotonic()
    run = load(resolve_endpoint(any_url), requests_of(), deadline=Deadline(total_s=0.4))
    assert run.requests[0].outcome == "timed_out"
    assert run.requests[0].error == "total timeout 0.4 s: no response after 0.4 s"
    assert run.requests[0].latency_s >= 0.4 and time.monotonic() - started < 15
    with pytest.raises(StepFailed, match=r"None of 1 requests .* no response after 0.4 s"):
        check_answered(run, "here")


def test_b105_the_message_says_which_timeout_expired(llm_server, load, requests_of):
    llm_server.behaviour.hang_on, llm_server.behaviour.stall_on = "say 0", "say 1"
    deadline = Deadline(first_token_s=0.2, total_s=0.5)
    first, total = load(resolve_endpoint(llm_server.grpc), requests_of(2), deadline=deadline).requests
    assert first.error == "first token timeout 0.2 s: no response after 0.2 s"
    assert total.error == "total timeout 0.5 s: the stream began but did not end"
    assert len(total.message_s) == 1 and total.latency_s >= 0.5


def test_b105_no_timeout_waits(llm_server, load, requests_of):
    llm_server.behaviour.first_s = 0.6
    deadlines = (Deadline(total_s=0.3), Deadline(None, None))
    outcomes = [
        load(resolve_endpoint(llm_server.grpc), requests_of(), deadline=limit).requests[0].outcome
        for limit in deadlines
    ]
    assert outcomes == ["timed_out", "answered"]


def test_a_request_that_is_given_up_is_cancelled_at_the_server(any_url, llm_server, load, requests_of):
    llm_server.behaviour.stall_on = "say"
    load(resolve_endpoint(any_url), requests_of(), deadline=Deadline(total_s=0.3))
    until = time.monotonic() + 5
    while llm_server.behaviour.in_flight and time.monotonic() < until:
        time.sleep(0.01)
    assert (llm_server.behaviour.in_flight, llm_server.behaviour.cancelled) == (0, 1)


@pytest.mark.parametrize("suffix", ["", "http://", "http:///v1"])
def test_b105_nobody_there_names_the_connect_timeout(suffix, load, requests_of):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    url = {"": address, "http://": f"http://{address}", "http:///v1": f"http://{address}/v1"}[suffix]
    with pytest.raises(EnvironmentMissing, match=rf"answers on .*{address}.* the connect timeout"):
        load(resolve_endpoint(url), requests_of())


def test_a_wrong_model_is_named(any_url, load, requests_of):
    with pytest.raises(SpecError, match="serves no model 'nonsense'"):
        load(resolve_endpoint(any_url, "nonsense"), requests_of())


def test_a_model_that_does_not_stream_is_refused(llm_server, load, requests_of):
    llm_server.behaviour.decoupled = False
    for url in (llm_server.grpc, llm_server.http):
        with pytest.raises(SpecError, match=r"does not stream: its config\.pbtxt says decoupled: false"):
            load(resolve_endpoint(url), requests_of())


def test_a_server_that_is_not_openai_is_told(llm_server, load, requests_of):
    with pytest.raises(SpecError, match=r"/v1/nothing/models answered HTTP 404"):
        load(resolve_endpoint(f"{llm_server.http}/v1/nothing"), requests_of())


def test_bytes_go_over_grpc_as_they_are(llm_server, load):
    from trt_spec.verify.load.request import LoadRequest

    (result,) = load(resolve_endpoint(llm_server.grpc), [LoadRequest("x", "fuzz", b"\xff\xfe", 2)]).requests
    assert result.outcome == "answered"
    assert llm_server.behaviour.requests[-1]["text_input"][4:] == b"\xff\xfe"
