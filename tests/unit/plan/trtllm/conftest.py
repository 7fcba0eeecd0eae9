"""Presets planned for a TensorRT-LLM version, from the built-in facts of their models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from trt_spec.plan.engine_steps import plan_engine_steps
from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.limits import EngineLimits, resolve_limits
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.steps import Step
from trt_spec.plan.toolchain import Profile, load_profile
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role, Spec
from trt_spec.spec.presets import load_preset

WORKSPACE = Workspace(Path("/workspace"))


class Planned(NamedTuple):
    spec: Spec
    files: dict[Role, ModelFiles]
    facts: dict[Role, ModelFacts]
    profile: Profile
    limits: dict[Role, EngineLimits]

    def steps(self) -> tuple[Step, ...]:
        return plan_engine_steps(self.spec, self.facts, self.limits, self.profile, WORKSPACE, self.files)

    def argv(self) -> dict[str, list[str]]:
        return {step.id: list(step.argv) for step in self.steps()}


@pytest.fixture(scope="session")
def plan_preset():
    """plan_preset(name, version, {"target": {"dtype": "float16"}, ...}) -> Planned; None removes a key."""

    def plan(name: str, version: str = "1.2.1", changes: dict | None = None) -> Planned:
        values = _merged(yaml.safe_load(load_preset(name).text), {"tensorrt_llm": version, **(changes or {})})
        spec = Spec.model_validate(values)
        files = {role: load_known_model(model.model) for role, model in spec.models().items()}
        facts = {role: resolve_facts(file.config, source=role) for role, file in files.items()}
        profile = load_profile(version)
        limits = {role: resolve_limits(spec, role, facts[role], profile, files[role])[0] for role in facts}
        return Planned(spec, files, facts, profile, limits)

    return plan


def _merged(values: dict, changes: dict) -> dict:
    merged = copy.deepcopy(values)
    for key, change in changes.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key) or {}, change) if isinstance(change, dict) else change
    return merged
