"""One request: what it is answered, and what the engines are sent for it."""

import json

import numpy as np
import pytest

from .fake_triton import FakeRequest, Tensor, counts_of, metrics_of, text_of


def test_an_answer_counts_what_was_drafted_and_accepted(start):
    request = FakeRequest("a")
    start().execute([request])
    assert counts_of(request.wait()) == (4, 4, 2)
    assert len(request.responses) == 1


def test_a_target_that_drafts_inside_is_not_said_to_draft_nothing(start, triton):
    model = start(tensorrt_llm_draft_model_name="", max_draft_len=0, draft_vocab_size=0, engine_drafts="true")
    request = FakeRequest("a", return_perf_metrics=True)
    model.execute([request])
    told = request.wait()
    assert text_of(told)
    assert sorted(told.outputs) == ["output_ids", "text_output"]
    assert {name for name, _ in triton.calls} == {"target"}


def test_b042_what_an_engine_pads_behind_its_answer_is_no_text(triton, start):
    whole, request = FakeRequest("a"), FakeRequest("a")
    model = start()
    model.execute([whole])
    expected = text_of(whole.wait())
    triton.more_outputs = lambda inputs, new: {"output_ids": np.array([[[*new, *[7] * 9]]])}
    model.execute([request])
    assert text_of(request.wait()) == expected


def test_b038_engines_are_told_end_and_padding(triton, start):
    for end_id in (None, 7):
        request = FakeRequest("a", **({} if end_id is None else {"end_id": end_id}))
        start().execute([request])
        request.wait()
        inputs = dict(triton.calls)
        assert inputs.keys() == {"target", "draft"}
        for sent in inputs.values():
            assert sent["end_id"].tolist() == sent["pad_id"].tolist() == [[315 if end_id is None else end_id]]


def test_b007_engines_are_asked_to_leave_the_prompt_out(triton, start):
    request = FakeRequest("a")
    start().execute([request])
    request.wait()
    assert {model for model, _ in triton.calls} == {"target", "draft"}
    assert all(inputs["exclude_input_in_output"].tolist() == [[True]] for _, inputs in triton.calls)
    first_verification = next(inputs for model, inputs in triton.calls if model == "target")
    assert first_verification["draft_input_ids"].size > 0


def test_a_stream_sends_a_response_a_round(start):
    request, whole = FakeRequest("a", stream=True), FakeRequest("a")
    model = start(decoupled=True)
    model.execute([request])
    request.wait()
    model.execute([whole])
    assert "".join(map(text_of, request.responses)) == text_of(whole.wait())
    assert len(request.responses) >= 3


def test_without_a_draft_model_the_target_answers_alone(start):
    request = FakeRequest("a")
    start(tensorrt_llm_draft_model_name="", max_draft_len=0).execute([request])
    assert counts_of(request.wait()) == (0, 0, 0)


def bias_request(text, bias_words, weights):
    request = FakeRequest(text)
    request._inputs += [
        Tensor("embedding_bias_words", np.array([[word.encode() for word in bias_words]], np.object_)),
        Tensor("embedding_bias_weights", np.array([weights], np.float32)),
    ]
    return request


@pytest.mark.parametrize("draft_vocab", [312, 320, 328])
def test_each_engine_gets_a_bias_of_its_own_length(triton, start, draft_vocab):
    request = bias_request("a", ["b"], [1.5])
    start(draft_vocab_size=draft_vocab).execute([request])
    text_of(request.wait())
    found = {model: inputs["embedding_bias"] for model, inputs in triton.calls}
    assert {model: bias.shape for model, bias in found.items()} == {"target": (1, 320), "draft": (1, draft_vocab)}
    assert all(sorted(bias[bias != 0]) == [1.5] for bias in found.values())


def test_who_asks_for_the_log_gets_the_rounds_and_not_the_text(triton, start):
    asking, silent = FakeRequest("secret"), FakeRequest("secret")
    asking.parameters_text = json.dumps({"trtspec_debug": True})
    model = start()
    model.execute([silent])
    silent.wait()
    assert triton.lines == []
    model.execute([asking])
    rounds = counts_of(asking.wait())[2]
    metrics_of(triton, 2)
    lines = [json.loads(line.removeprefix("trtspec ")) for line in triton.lines]
    assert [line["event"] for line in lines] == ["begin", *["round"] * rounds, "end"]
    assert lines[1]["drafted"] == lines[1]["accepted"] == 2
    assert (lines[1]["model"], lines[1]["request"]) == ("ensemble", lines[0]["request"])
    assert lines[-1]["outcome"] == "answered"
    assert "secret" not in "".join(triton.lines)
