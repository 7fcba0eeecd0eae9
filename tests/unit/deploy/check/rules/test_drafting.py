import pytest

from trt_spec.deploy.check.rules.drafting import KEYS

BOTH = ("tensorrt_llm_bls", "ensemble")


@pytest.fixture
def looking_up(ours):
    """looking_up() -> the repository that `trtspec deploy` writes for n-gram look-up."""
    return lambda: ours(draft=None, draft_source="ngram", draft_vocab_size=0)


def test_what_deploy_writes_is_right(ours):
    repository = ours(adaptive=True, draft_len_by_running=(4, 3, 1, 0))
    assert repository.config("ensemble").parameters.keys() >= KEYS
    assert repository.findings() == []


def test_an_older_repository_says_nothing_of_drafting(ours):
    repository = ours()
    for model in BOTH:
        repository.set(model, **dict.fromkeys(KEYS))
    assert repository.findings() == []


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("draft_source", "ngrams", "draft_source is 'ngrams', expected model, ngram or auto"),
        ("engine_takes_retention", "yes", "engine_takes_retention is 'yes', expected true or false"),
        ("target_logits_width", "-5", "target_logits_width is '-5', expected a whole number of at least 1"),
        ("adaptive", "True", "adaptive is 'True', expected true or false"),
        ("accept", "logit", "accept is 'logit', expected tokens, logits or fast_logits"),
        ("draft_len_by_running", "4,,3", "expected lengths such as"),
        ("draft_len_by_running", "4, 3", "expected lengths such as"),
        ("draft_len_by_running", "-1", "expected lengths such as"),
        ("max_inflight_tokens_target", "0", "expected a whole number of at least 1"),
        ("max_inflight_tokens_draft", "all", "max_inflight_tokens_draft is 'all'"),
    ],
)
def test_a_value_that_keeps_the_orchestrator_from_starting(ours, model, key, value, says):
    repository = ours()
    repository.set(model, **{key: value})
    finding = repository.find("orchestrator-parameter")
    assert (finding.severity, finding.file) == ("error", f"{model}/config.pbtxt")
    assert says in finding.what


@pytest.mark.parametrize("source", ["model", "auto", None])
def test_a_source_that_is_not_there(looking_up, source):
    repository = looking_up()
    assert repository.findings() == []
    repository.set("ensemble", draft_source=source)
    finding = repository.find("orchestrator-draft-source")
    assert finding.severity == "error"
    assert f"draft_source is {source or 'model'}, and there is no draft model" in finding.what


def test_lengths_that_the_engine_refuses(ours):
    repository = ours(draft_len_by_running=(4, 3))
    repository.set("ensemble", draft_len_by_running="4,6,5")
    finding = repository.find("orchestrator-draft-lengths")
    assert (finding.severity, finding.file) == ("error", "ensemble/config.pbtxt")
    assert "draft_len_by_running has 5, 6, max_draft_len is 4" in finding.what


def test_more_lengths_than_requests(ours):
    repository = ours(draft_len_by_running=(4,) * 8)
    assert repository.findings() == []
    repository.set("ensemble", draft_len_by_running=",".join("4" * 9))
    finding = repository.find("orchestrator-draft-lengths")
    assert finding.severity == "warning"
    assert "has 9 entries, max_batch_size is 8" in finding.what


def test_logits_of_no_draft_model(looking_up):
    repository = looking_up()
    repository.set("ensemble", accept="logits")
    assert "there is no draft model whose logits could decide" in repository.find("orchestrator-accept").what


def test_logits_of_engines_that_keep_none(ours):
    repository = ours(accept="logits")
    repository.set_engine("target", "build_config", gather_generation_logits=True)
    repository.set_engine("draft", "build_config", gather_generation_logits=True)
    assert repository.findings("orchestrator-accept") == []
    repository.set_engine("draft", "build_config", gather_generation_logits=False)
    findings = repository.findings("orchestrator-accept")
    assert ["tensorrt_llm_draft was built without" in finding.what for finding in findings] == [True, True]


def test_fast_logits_that_no_engine_hands_over(ours):
    repository = ours()
    for role in ("target", "draft"):
        repository.set_engine(role, "build_config", gather_generation_logits=True)
    repository.set("ensemble", accept="fast_logits")
    finding = repository.find("orchestrator-accept")
    assert "speculative_decoding_fast_logits is not true in tensorrt_llm, tensorrt_llm_draft" in finding.what


def test_more_tokens_in_flight_than_an_engine_caches(ours):
    repository = ours()
    repository.set("ensemble", max_inflight_tokens_draft="1281")
    finding = repository.find("orchestrator-inflight-tokens")
    assert finding.severity == "warning"
    assert "is 1281, tensorrt_llm_draft caches 1280" in finding.what
    repository.apply(finding)
    assert repository.findings() == []


def test_an_engine_that_takes_no_drafts_cannot_verify_what_is_looked_up(looking_up):
    repository = looking_up()
    repository.set_engine("target", "build_config", speculative_decoding_mode=1)
    assert repository.find("target-mode").severity == "error"


def test_look_up_resends_prefixes_as_a_pair_does(looking_up):
    repository = looking_up()
    repository.set("tensorrt_llm", enable_kv_cache_reuse="false")
    assert repository.find("kv-reuse-off").severity == "error"
