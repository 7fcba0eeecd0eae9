"""The steps that a build of a spec would plan now, from what is known of its models without their weights."""

from __future__ import annotations

from trt_spec.build.run import BuildOptions
from trt_spec.plan.steps import Step, plan_onnx_steps
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec


def load_planned_steps(spec: Spec, workspace: Workspace) -> tuple[Step, ...]:
    """Every step of a build of ``spec``; none for backend llmapi.

    Raises SpecError for a plan that cannot work, and EnvironmentMissing where a hub model is not known here.
    """
    if spec.backend == "onnx":
        return plan_onnx_steps(spec)
    if spec.backend == "llmapi":
        return ()
    from trt_spec.build.engine.run import load_plan

    # A release without a profile was accepted when it was built; listing its outputs asks nothing again.
    return load_plan(BuildOptions(spec, workspace, accept_derived=True)).steps
