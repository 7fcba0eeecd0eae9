import shutil

import pytest


def test_b002_a_draft_model_that_is_not_there(nvidia):
    repository = nvidia(has_draft=True)
    repository.set("tensorrt_llm_bls", tensorrt_llm_draft_model_name="tensorrt_llm_drafts")
    finding = repository.find("model-not-found")
    assert finding.severity == "error"
    assert finding.file == "tensorrt_llm_bls/config.pbtxt"
    expected = 'BLS draft model "tensorrt_llm_drafts" not found in repository (have: tensorrt_llm, tensorrt_llm_draft)'
    assert finding.what == expected
    assert '"tensorrt_llm_drafts"' in repository.file("tensorrt_llm_bls").read_text().split("\n")[finding.line - 1]
    assert finding.fix is not None
    assert finding.fix.after.strip() == 'string_value: "tensorrt_llm_draft"'


def test_b002_a_target_that_is_not_there(nvidia):
    repository = nvidia()
    repository.set("tensorrt_llm_bls", tensorrt_llm_model_name="${tensorrt_llm_model_name}")
    assert not repository.findings("model-not-found")  # NVIDIA's BLS takes tensorrt_llm then
    repository.set("tensorrt_llm_bls", tensorrt_llm_model_name="llm")
    assert 'BLS target model "llm" not found' in repository.find("model-not-found").what


def test_a_second_instance_is_no_draft(nvidia):
    repository = nvidia()
    shutil.copytree(repository.root / "tensorrt_llm", repository.root / "tensorrt_llm_2")
    repository.edit("tensorrt_llm_2", 'name: "tensorrt_llm"', 'name: "tensorrt_llm_2"')
    assert repository.findings("draft-unnamed") == []


def test_a_second_engine_beside_a_target_built_for_drafts_is_one(theirs):
    repository = theirs()
    (repository.root / "tensorrt_llm_draft").rename(repository.root / "tensorrt_llm_2")
    repository.edit("tensorrt_llm_2", 'name: "tensorrt_llm_draft"', 'name: "tensorrt_llm_2"')
    repository.set("tensorrt_llm_bls", tensorrt_llm_draft_model_name="")
    assert "the repository has tensorrt_llm_2" in repository.find("draft-unnamed").what
    repository.set_engine("target", "build_config", speculative_decoding_mode=1)
    assert repository.findings("draft-unnamed") == []


@pytest.mark.parametrize("name", ["ensemble", "tensorrt_llm_bls", "preprocessing"])
@pytest.mark.parametrize("key", ["tensorrt_llm_model_name", "tensorrt_llm_draft_model_name"])
def test_b002_a_model_that_takes_no_tokens(theirs, key, name):
    repository = theirs()
    repository.set("tensorrt_llm", enable_kv_cache_reuse="false")
    repository.set("tensorrt_llm_bls", **{key: name})
    finding = repository.find("model-not-engine")
    assert (finding.severity, finding.file) == ("error", "tensorrt_llm_bls/config.pbtxt")
    assert f'"{name}" is {"the model itself" if name == "tensorrt_llm_bls" else "no engine"}' in finding.what
    assert f'"{name}"' in repository.line(finding)
    assert repository.findings("kv-reuse-off")  # the rules of speculation are not switched off by it


@pytest.mark.parametrize("name", ["tensorrt_llm", "tensorrt_llm_draft"])
def test_b002_one_model_for_both_roles(theirs, name):
    repository = theirs()
    names = {"tensorrt_llm_model_name": name, "tensorrt_llm_draft_model_name": name}
    repository.set("tensorrt_llm_bls", **names)
    repository.set("tensorrt_llm", enable_kv_cache_reuse="false")
    repository.set("tensorrt_llm_draft", enable_kv_cache_reuse="false")
    finding = repository.find("draft-equals-target")
    assert (finding.severity, finding.fix) == ("error", None)
    assert f'target and draft model are both "{name}"' in finding.what
    assert {row.file: row.severity for row in repository.findings("kv-reuse-off")} == {
        "tensorrt_llm/config.pbtxt": "error",
        "tensorrt_llm_draft/config.pbtxt": "warning",
    }
