"""triton_repo/ of a checkout: the repository of a preset, made from its plan alone, for people to look at.

``python -m trt_spec.deploy.example`` says whether it is current, ``--write`` renews it. README.md there is written by
hand and stays.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import yaml

from trt_spec import __version__
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.deploy.targets.target import CONTAINER_ROOT
from trt_spec.errors import SpecError
from trt_spec.plan.engine_entry import resolve_engine_entry
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.manifest import Manifest
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.plan import PlanOptions, make_plan
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec
from trt_spec.spec.presets import load_preset
from trt_spec.util.generated import GeneratedFolder, run_generator

EXAMPLE_PRESET = "llama-3.1-405b-h200x4"
EXAMPLE = GeneratedFolder(Path(__file__).parents[2] / "triton_repo", by_hand=("README.md",))
_NOT_BUILT = "planned, not built"


def plan_manifest(spec: Spec) -> Manifest:
    """The manifest that a build of ``spec`` would leave, for built-in models; its fingerprints say that it is planned.

    Raises SpecError for a plan that cannot work.
    """
    files = {role: _load_files(model.model) for role, model in spec.models().items()}
    plan = make_plan(spec, files, PlanOptions(Workspace(Path(CONTAINER_ROOT))))
    if plan.refused:
        raise SpecError(f"The plan cannot work: {plan.findings[0].message}", remedy=plan.findings[0].remedy)
    engines = {str(role): resolve_engine_entry(plan, role, _NOT_BUILT, None) for role in files}
    return Manifest(trtspec=__version__, spec=spec, engines=engines, draft_len_by_running=plan.draft_len_by_running)


def _load_files(reference: str) -> ModelFiles:
    known = load_known_model(reference)
    assert known is not None, f"{reference} is not built in"
    return known


def plan_example() -> Deployment:
    """The deployment of the example: engines in a container, no tokenizer (those of Llama are not free to copy)."""
    spec = Spec.model_validate(yaml.safe_load(load_preset(EXAMPLE_PRESET).text))
    deployment = resolve_deployment(plan_manifest(spec), Workspace(Path(CONTAINER_ROOT)), CONTAINER_ROOT)
    assert deployment.draft is not None
    return replace(
        deployment,
        id=_NOT_BUILT,
        target=_elsewhere(deployment.target),
        draft=_elsewhere(deployment.draft),
        tokenizer_dir=None,
    )


def _elsewhere(engine: EngineDeployment) -> EngineDeployment:
    return replace(engine, folder=None)


def render_example() -> dict[str, bytes]:
    """What the files of the example should be, by their path."""
    with tempfile.TemporaryDirectory() as scratch:
        return GeneratedFolder(write_repository(plan_example(), Path(scratch, "repository")), by_hand=()).load()


if __name__ == "__main__":
    run_generator("trt_spec.deploy.example", EXAMPLE, render_example())
