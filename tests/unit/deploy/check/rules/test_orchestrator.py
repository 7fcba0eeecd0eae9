import pytest

from trt_spec.deploy.check.rules.orchestrator import LIMITS
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.serve.text_request import OrchestratorLimits


def test_the_limits_are_those_that_the_orchestrator_reads():
    assert set(LIMITS) == set(OrchestratorLimits.__dataclass_fields__)


@pytest.mark.parametrize("model", ["tensorrt_llm_bls", "ensemble"])
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("max_draft_len", "abc", "max_draft_len is 'abc', expected a whole number of at least 1"),
        ("max_draft_len", "0", "at least 1"),
        ("max_draft_len", "-1", "at least 1"),
        ("max_draft_len", None, "max_draft_len is missing"),
        ("max_inflight_requests", "0", "max_inflight_requests is '0', expected a whole number of at least 1"),
        ("max_seq_len", "x", "max_seq_len is 'x'"),
        ("max_seq_len", "5", "max_seq_len is 5, which leaves no room beside max_draft_len 4"),
        ("max_seq_len", "1" * 5000, "max_seq_len is '111"),
        ("max_queue_requests", "-3", "max_queue_requests is '-3', expected a whole number of at least 0"),
        ("max_output_len", "1.0", "max_output_len is '1.0'"),
        ("tokenizer_dir", None, "tokenizer_dir is missing"),
        ("tensorrt_llm_model_name", "", "tensorrt_llm_model_name is empty"),
        ("engine_seed_name", "sed", "engine_seed_name is 'sed', tensorrt_llm calls it seed"),
        ("draft_vocab_size", "0", "draft_vocab_size is '0', expected a whole number of at least 1"),
        ("log_probs", "maybe", "log_probs is 'maybe', expected engine, logits or none"),
        ("max_draft_length", "3", "the orchestrator knows no parameter max_draft_length"),
    ],
)
def test_a_parameter_that_keeps_the_orchestrator_from_serving(ours, model, key, value, says):
    repository = ours()
    repository.set(model, **{key: value})
    finding = repository.find("orchestrator-parameter")
    assert (finding.severity, finding.file) == ("error", f"{model}/config.pbtxt")
    assert says in finding.what


def test_a_target_alone_drafts_nothing(ours):
    repository = ours(draft=None, max_draft_len=0, draft_vocab_size=0)
    assert repository.findings("orchestrator-parameter") == []


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_the_seed_of_the_version_is_right(ours, version):
    assert ours(version).findings("orchestrator-parameter") == []
