"""`trtspec build --dry-run` and `--print-script`: what would be done, as text."""

from __future__ import annotations

import json

from trt_spec.build.run import BuildOptions
from trt_spec.errors import SpecError
from trt_spec.plan.steps import plan_onnx_steps


def render_build_preview(options: BuildOptions, as_json: bool) -> str:
    """Steps, sizes, times and commands; nothing is run or written. Raises SpecError for a plan that cannot work."""
    if options.spec.backend == "onnx":
        steps = plan_onnx_steps(options.spec)
        if as_json:
            shown = [{"id": step.id, "kind": step.kind, "params": dict(step.params)} for step in steps]
            return json.dumps({"schema": 1, "name": options.spec.name, "steps": shown}, indent=2) + "\n"
        return "".join(f"{step.id}: (inside trtspec build) from {step.source}\n" for step in steps)
    _check_engine(options)
    from trt_spec.build.engine.preview import preview_build, preview_document, render_preview
    from trt_spec.build.engine.run import load_plan

    preview = preview_build(load_plan(options), options)
    return json.dumps(preview_document(preview), indent=2) + "\n" if as_json else render_preview(preview)


def render_build_script(options: BuildOptions) -> str:
    """The steps as a bash script. Raises SpecError for a backend without commands and a plan that cannot work."""
    _check_engine(options)
    from trt_spec.build.engine.preview import render_script
    from trt_spec.build.engine.run import load_plan

    return render_script(load_plan(options), options)


def _check_engine(options: BuildOptions) -> None:
    if options.spec.backend != "engine":
        raise SpecError(
            f"Backend {options.spec.backend} has no commands: trtspec builds it in its own process, or not at all.",
            remedy="A script is written for `backend: engine`.",
        )
