from trt_spec.plan.draft_lengths import LONGEST_TABLE, default_draft_lengths, plan_draft_lengths
from trt_spec.spec.model import Spec


def make(backend="onnx", mode="draft_target", max_draft_len=4, max_batch_size=8):
    draft = {"draft": {"model": "./draft"}} if mode == "draft_target" else {}
    return Spec.model_validate(
        {
            "name": "a",
            "backend": backend,
            "hardware": {"gpu": "H200", "gpus": 1},
            "target": {"model": "./target"},
            "speculation": {"mode": mode, "max_draft_len": max_draft_len},
            "limits": {"max_batch_size": max_batch_size},
            **draft,
        }
    )


def test_the_table_ends_where_nothing_changes_any_more():
    assert plan_draft_lengths(lambda running: max(0, 5 - running), 32) == (4, 3, 2, 1, 0)
    assert plan_draft_lengths(lambda _running: 3, 32) == (3,)
    assert plan_draft_lengths(lambda running: 9 - running, 3) == (8, 7, 6)


def test_thousands_of_requests_get_no_thousands_of_entries():
    asked = []
    plan_draft_lengths(lambda running: asked.append(running) or running, 4096)
    assert asked == list(range(1, LONGEST_TABLE + 1))


def test_a_cpu_starts_with_less_the_more_requests_there_are():
    assert default_draft_lengths(make()) == (4, 3, 3, 2, 2, 1, 1, 0)
    assert default_draft_lengths(make(max_draft_len=1, max_batch_size=16)) == (1, 1, 1, 1, 1, 1, 1, 0)
    assert default_draft_lengths(make(mode="ngram", max_batch_size=1)) == (4,)


def test_gpus_without_a_prediction_start_with_the_longest():
    assert default_draft_lengths(make("engine", "ngram")) == (4,)


def test_nothing_is_drafted_without_speculation():
    assert default_draft_lengths(make(mode="none")) == ()
