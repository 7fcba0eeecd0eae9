from __future__ import annotations

from typing import Any

import pytest

from trt_spec.plan.llmapi_checks import check_llmapi_models
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.plan import PlanOptions, make_plan
from trt_spec.plan.render import render_json
from trt_spec.plan.workspace import Workspace


def codes(findings: tuple[Any, ...]) -> dict[str, str]:
    return {finding.code: finding.severity for finding in findings}


@pytest.fixture
def make_llmapi(make_spec: Any) -> Any:
    def make(mode: str = "draft_target", **sections: Any) -> Any:
        changes = {"backend": "llmapi", "tensorrt_llm": "1.2.1", "speculation": {"mode": mode}, **sections}
        if mode not in ("draft_target", "eagle3"):
            changes["draft"] = None
        return make_spec(**changes)

    return make


def test_a_sound_pair_is_read(make_llmapi: Any, make_files: Any) -> None:
    facts, findings = check_llmapi_models(make_llmapi(), {"target": make_files(), "draft": make_files()})
    assert set(facts) == {"target", "draft"}
    assert "refuse" not in codes(findings).values()


def test_another_vocabulary_is_refused_as_for_engines(make_llmapi: Any, make_files: Any) -> None:
    other = make_files(tokens={number: f"u{number}" for number in range(96)})
    found = codes(check_llmapi_models(make_llmapi(), {"target": make_files(), "draft": other})[1])
    assert found["pair-token-differs"] == "refuse"


def test_heads_that_cannot_be_split_are_refused_for_both_models(make_llmapi: Any, make_files: Any) -> None:
    spec = make_llmapi(target={"model": "owner/big", "tensor_parallel": 3})
    findings = check_llmapi_models(spec, {"target": make_files(), "draft": make_files()})[1]
    assert {f.role for f in findings if f.severity == "refuse"} == {"target", "draft"}


def test_an_architecture_that_trtspec_cannot_size_is_no_obstacle(make_llmapi: Any) -> None:
    files = ModelFiles(
        "owner/big", "local", {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1}
    )
    facts, findings = check_llmapi_models(make_llmapi("mtp"), {"target": files})
    assert facts == {}
    assert codes(findings) == {"llmapi-unread": "warn"}


def test_mtp_needs_layers_for_it(make_llmapi: Any, make_files: Any) -> None:
    assert codes(check_llmapi_models(make_llmapi("mtp"), {"target": make_files()})[1])["llmapi-no-mtp-layers"] == "warn"
    with_layers = make_files(num_nextn_predict_layers=1)
    assert "llmapi-no-mtp-layers" not in codes(check_llmapi_models(make_llmapi("mtp"), {"target": with_layers})[1])


def test_a_language_model_is_no_eagle3_head(make_llmapi: Any, make_files: Any) -> None:
    files = {"target": make_files(), "draft": make_files(num_hidden_layers=16)}
    assert codes(check_llmapi_models(make_llmapi("eagle3"), files)[1])["llmapi-no-eagle3-head"] == "refuse"
    files["draft"] = make_files(num_hidden_layers=1)
    assert "llmapi-no-eagle3-head" not in codes(check_llmapi_models(make_llmapi("eagle3"), files)[1])


def test_the_pytorch_path_quantises_nothing(make_llmapi: Any, make_files: Any) -> None:
    spec = make_llmapi("none", target={"model": "owner/big", "quantization": "fp8"})
    assert codes(check_llmapi_models(spec, {"target": make_files()})[1])["llmapi-not-quantised"] == "refuse"
    stored = make_files(quantization_config={"quant_method": "modelopt", "quant_algo": "FP8"})
    assert "llmapi-not-quantised" not in codes(check_llmapi_models(spec, {"target": stored})[1])
    plain = make_llmapi("none")
    assert codes(check_llmapi_models(plain, {"target": stored})[1])["llmapi-quantised"] == "note"


def test_a_model_without_files_does_not_hide_the_other(make_llmapi: Any, make_files: Any) -> None:
    spec = make_llmapi(target={"model": "owner/big", "tensor_parallel": 3}, limits={"max_input_len": 2**20})
    for role in ("target", "draft"):
        facts, findings = check_llmapi_models(spec, {role: make_files()})  # type: ignore[dict-item]
        assert set(facts) == {role}
        refused = [finding for finding in findings if finding.severity == "refuse"]
        assert {finding.role for finding in refused} == {role}
        assert any("< 1049088 tokens" in finding.message for finding in refused)
        assert any("divide by 3 ranks" in finding.message for finding in refused)
    assert check_llmapi_models(make_llmapi("eagle3"), {}) == ({}, ())
    assert check_llmapi_models(make_llmapi("mtp"), {}) == ({}, ())


def test_a_plan_has_no_steps_and_says_how_it_is_served(make_llmapi: Any, make_files: Any, tmp_path: Any) -> None:
    options = PlanOptions(Workspace(tmp_path))
    plan = make_plan(make_llmapi(), {"target": make_files(), "draft": make_files()}, options)
    assert (plan.steps, plan.engine, plan.refused) == ((), None, False)
    assert plan.llmapi is not None and plan.llmapi.launch.world_size == 1
    text = render_json(plan)
    assert '"decoding_type": "DraftTarget"' in text and "--speculative-config" in text
