"""Who drafts for a request, and with which logits the target accepts."""

import numpy as np
import pytest

from .fake_triton import FakeRequest, Tensor, TritonError, counts_of, metrics_of, text_of


def text_value(text):
    return np.array([[text.encode()]], np.object_)


def with_source(text, source, **inputs):
    request = FakeRequest(text, **inputs)
    request._inputs.append(Tensor("draft_source", text_value(source)))
    return request


@pytest.mark.parametrize("by", ["request", "deployment"])
def test_ngram_lookup_drafts_without_the_draft_model(triton, start, by):
    triton.engine = lambda model, ids, n, drafts: [7 + (len(ids) + i) % 3 for i in range(n)]
    request = with_source("aaaaaaaa", "ngram" if by == "request" else "", max_tokens=40)
    plain = FakeRequest("aaaaaaaa", max_tokens=40, num_draft_tokens=0)
    model = start(draft_source="ngram" if by == "deployment" else "model")
    model.execute([request, plain])
    assert text_of(request.wait()) == text_of(plain.wait())
    drafted, accepted, _ = counts_of(request.responses[-1])
    assert drafted >= accepted > 10
    assert {name for name, _ in triton.calls} == {"target"}
    metrics = metrics_of(triton, 2)
    assert metrics["trtspec_ngram_draft_tokens_total"] == metrics["trtspec_draft_tokens_total"] == drafted
    assert metrics["trtspec_accepted_ngram_draft_tokens_total"] == accepted


@pytest.mark.parametrize(
    ("source", "inputs", "parameters", "message"),
    [
        ("cache", {}, {}, "expected model, ngram, auto"),
        ("ngram", {"num_draft_tokens": 0}, {}, "drafts nothing"),
        ("model", {}, {"tensorrt_llm_draft_model_name": ""}, "no draft model"),
        ("auto", {}, {"tensorrt_llm_draft_model_name": ""}, "no draft model"),
        ("", {"use_draft_logits": True}, {}, "use_draft_logits true is not supported here"),
    ],
)
def test_what_a_deployment_lacks_is_refused(start, source, inputs, parameters, message):
    request = with_source("a", source, **inputs)
    start(**parameters).execute([request])
    error = request.wait().error()
    assert error.code == TritonError.INVALID_ARG
    assert message in error.message()


@pytest.mark.parametrize("parameters", [{"draft_source": "cache"}, {"accept": "all"}])
def test_a_deployment_that_says_nonsense_does_not_start(start, parameters):
    with pytest.raises(ValueError, match="expected"):
        start(**parameters)


LOGITS_ROW = np.linspace(-3.0, 3.0, 312, dtype=np.float32)


def draft_logits_of(inputs, new):
    return {"generation_logits": np.tile(LOGITS_ROW, (1, 1, len(new) + 1, 1))} if "end_id" not in inputs else {}


def test_logits_go_to_the_target_as_the_draft_sampled_them(triton, start):
    triton.more_outputs = draft_logits_of
    request = FakeRequest("a", temperature=np.float32(0.5), top_k=np.int32(4), seed=np.uint64(1))
    start(accept="logits", target_logits_width=328).execute([request])
    text_of(request.wait())
    drafts = [inputs for model, inputs in triton.calls if model == "draft"]
    verified = [inputs["draft_logits"] for model, inputs in triton.calls if "draft_input_ids" in inputs]
    assert len(drafts) == len(verified) == 2
    assert all(inputs["return_generation_logits"].all() and "end_id" not in inputs for inputs in drafts)
    q = np.exp(LOGITS_ROW[-4:] / 0.5)
    for sent in verified:
        assert (sent.shape, sent.dtype) == ((1, 2, 328), np.float32)
        np.testing.assert_allclose(np.exp(sent[0, 0, 308:312]), q / q.sum(), rtol=1e-5)
        assert np.isfinite(sent).all()
        assert (np.exp(sent) > 0).sum() == 8


def test_a_draft_without_logits_is_accepted_by_equality(triton, start):
    request = FakeRequest("a", temperature=np.float32(0.5), top_k=np.int32(4))
    start(accept="logits").execute([request])
    text_of(request.wait())
    assert counts_of(request.responses[-1]) == (4, 4, 2)
    assert not any("draft_logits" in inputs for _, inputs in triton.calls)
    assert [line for line in triton.warnings if "gave no generation_logits" in line] == triton.warnings[:1]


def test_fast_logits_go_on_as_the_handle_they_are(triton, start):
    handle = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    triton.more_outputs = lambda inputs, new: (
        {"generation_logits": handle} if "return_generation_logits" in inputs else {}
    )
    model = start(accept="fast_logits")
    raw, cooled = (
        FakeRequest("a", temperature=np.float32(value), top_p=np.float32(1.0), seed=np.uint64(1)) for value in (1, 0.5)
    )
    model.execute([raw])
    text_of(raw.wait())
    sent = [inputs["draft_logits"] for _, inputs in triton.calls if "draft_logits" in inputs]
    assert len(sent) == 2
    assert all((value == handle[:, 0]).all() and value.shape == (1, 1, 4) for value in sent)
    triton.calls.clear()
    model.execute([cooled])
    text_of(cooled.wait())
    assert not any("draft_logits" in inputs or "return_generation_logits" in inputs for _, inputs in triton.calls)
