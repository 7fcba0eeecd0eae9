"""A plan as one JSON document; schema 1, keys are only ever added."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import Any

from trt_spec.plan.explain import explain_all
from trt_spec.plan.launch import Launch
from trt_spec.plan.llmapi_comparison import SERVE_YAML, plan_serve_yaml, plan_trtllm_serve, plan_vllm
from trt_spec.plan.plan import LlmapiServing, Plan
from trt_spec.plan.speed import SpeedPrediction

SCHEMA_VERSION = 1


def render_json(plan: Plan) -> str:
    """The whole plan with every derived number, its formula and its source."""
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "name": plan.spec.name,
        "backend": plan.spec.backend,
        "tensorrt_llm": plan.spec.tensorrt_llm,
        "refused": plan.refused,
        "findings": [asdict(finding) for finding in plan.findings],
        "models": {
            role: {**asdict(facts), "parameters": facts.parameters, "origin": plan.files[role].origin}
            for role, facts in plan.facts.items()
        },
        "steps": [
            {"id": step.id, "kind": step.kind, "role": step.role, "source": step.source, "params": dict(step.params)}
            | {"argv": list(step.argv), "command": shlex.join(step.argv)}
            for step in plan.steps
        ],
        "explanations": [asdict(explanation) for explanation in explain_all(plan)],
    }
    engine = plan.engine
    if engine is not None:
        memory = {key: value for key, value in asdict(engine.memory).items() if key != "findings"}
        document |= {
            "toolchain": {
                "container": engine.profile.container,
                "tensorrt": engine.profile.tensorrt,
                "cuda": engine.profile.cuda,
                "flags_trust": engine.profile.flags_trust,
                "trust": dict(engine.profile.trust),
            },
            "limits": {role: asdict(limits) for role, limits in engine.limits.items()},
            "placement": asdict(engine.placement),
            "memory": memory,
            "speed": _render_speed(engine.speed),
            "launch": _render_launch(engine.launch),
        }
        if engine.medusa is not None:
            document["medusa"] = {**asdict(engine.medusa), "depth": engine.medusa.depth}
    if plan.draft_len_by_running:
        document["draft_len_by_running"] = list(plan.draft_len_by_running)
    if plan.self_draft is not None:
        document["self_draft"] = asdict(plan.self_draft)
    if plan.llmapi is not None:
        document["llmapi"] = _render_llmapi(plan.llmapi)
    return json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"


def _render_speed(speed: SpeedPrediction | None) -> dict[str, Any] | None:
    return None if speed is None else {**asdict(speed), "draft_len_by_batch": speed.draft_len_by_batch}


def _render_llmapi(serving: LlmapiServing) -> dict[str, Any]:
    plan = serving.plan
    return {
        "container": plan.image,
        "dialect": {"since": plan.dialect.since, "trust": plan.dialect.trust, "source": plan.dialect.source},
        "model_yaml": plan.model_yaml(),
        "trtllm_serve": {
            "argv": list(plan_trtllm_serve(plan, SERVE_YAML)),
            "config": plan_serve_yaml(plan),
        },
        "vllm": {"argv": list(plan_vllm(plan.spec))},
        "launch": _render_launch(serving.launch),
    }


def _render_launch(launch: Launch | None) -> dict[str, Any]:
    if launch is None:
        return {"argv": [], "command": "", "environment": {}, "nodes": []}
    return {
        "argv": list(launch.command()),
        "command": launch.shell_line(),
        "environment": dict(launch.environment),
        "nodes": list(launch.nodes),
    }
