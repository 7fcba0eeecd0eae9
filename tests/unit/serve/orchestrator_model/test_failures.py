"""Engines that fail or hang, and what the client hears of it."""

from trt_spec.serve.draft_rest import FAILURES_BEFORE_REST

from .fake_triton import FakeRequest, counts_of, fell_back, metrics_of, text_of


def test_a_failing_draft_leaves_the_answer_to_the_target(triton, start):
    calls = []

    def engine(model, ids, n, drafts):
        calls.append(model)
        return "out of memory" if model == "draft" else [len(ids) % 300 + i for i in range(n)]

    whole, request = FakeRequest("a"), FakeRequest("a")
    model = start()
    model.execute([whole])
    expected = text_of(whole.wait())
    triton.engine = engine
    model.execute([request])
    assert text_of(request.wait()) == expected
    assert counts_of(request.responses[-1]) == (0, 0, 0)
    assert fell_back(request.responses[-1])
    assert not fell_back(whole.responses[-1])
    assert calls == ["draft", "target"]  # the rest in one plain call
    assert len(triton.warnings) == 1
    assert "out of memory" in triton.warnings[0]


def test_a_failing_target_is_the_clients_to_know_and_nobody_elses(triton, start):
    failing = FakeRequest("a")
    model = start()
    engine, triton.engine = triton.engine, lambda *call: "no such model"
    model.execute([failing])
    assert "no such model" in failing.wait().error().message()
    triton.engine = engine
    following = FakeRequest("a")
    model.execute([following])
    assert text_of(following.wait())


def test_an_unforeseen_failure_is_an_error_response(triton, start):
    request = FakeRequest("a")
    triton.engine = lambda *call: 1 / 0
    start().execute([request])
    assert "division by zero" in request.wait().error().message()


def test_a_draft_engine_that_hangs_is_given_up_and_one_that_keeps_failing_is_left_alone(
    triton, start, monkeypatch, never
):
    monkeypatch.setattr("trt_spec.serve.triton_engines.DRAFT_LIMIT_S", 0.05)
    asked, engine = [], triton.engine

    def hanging(model, *call):
        asked.append(model)
        return never() if model == "draft" else engine(model, *call)

    triton.engine, model = hanging, start()
    plain = FakeRequest("a", num_draft_tokens=0)
    model.execute([plain])
    expected = text_of(plain.wait())
    for _ in range(5):
        request = FakeRequest("a")
        model.execute([request])
        assert text_of(request.wait()) == expected
        assert fell_back(request.responses[-1])
    assert asked.count("draft") == FAILURES_BEFORE_REST
    assert "has not answered for 0.05 s" in triton.warnings[0]
    assert triton.shared == []  # the target gets no tensor that the draft may still be reading


def test_a_draft_engine_that_hangs_for_ever_holds_no_more_calls_than_requests_may_be_in_flight(
    triton, start, monkeypatch, never
):
    monkeypatch.setattr("trt_spec.serve.triton_engines.DRAFT_LIMIT_S", 0.02)
    monkeypatch.setattr("trt_spec.serve.draft_rest.FIRST_REST_S", 0.0)  # every request tries
    asked, engine = [], triton.engine

    def hanging(model, *call):
        asked.append(model)
        return never() if model == "draft" else engine(model, *call)

    triton.engine, model = hanging, start(max_inflight_requests="4")
    for _ in range(7):
        request = FakeRequest("a")
        model.execute([request])
        request.wait()
        assert fell_back(request.responses[-1])
    assert asked.count("draft") == 4


def test_a_target_engine_that_hangs_fails_its_request(triton, start, monkeypatch, never):
    monkeypatch.setattr("trt_spec.serve.triton_engines.TARGET_LIMIT_S", 0.05)
    request, triton.engine = FakeRequest("a", num_draft_tokens=0), never
    start().execute([request])
    assert "target has not answered for 0.05 s" in request.wait().error().message()
    assert metrics_of(triton, 1)["trtspec_running_requests"] == 0
