"""The deployment of backend llmapi: no engine, one model that Triton serves, and commands to compare it with.

WORKSPACE/repository/tensorrt_llm   config.pbtxt, 1/model.yaml, 1/model.py (which finds NVIDIA's in the container)
WORKSPACE/compare                   the same models under trtllm-serve and vLLM

NVIDIA's launcher switches Triton's auto-completion off, and with it what model.yaml says of Triton: whether the model
is decoupled stands in config.pbtxt, too, as NVIDIA's own test edits it there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trt_spec.deploy import llmapi_model
from trt_spec.deploy.dialect import Dialect, load_llmapi_template
from trt_spec.deploy.ownership import check_replaceable, write_owned_folder
from trt_spec.deploy.parameter_names import LLMAPI_FILE, PYTHON_BACKEND
from trt_spec.deploy.pbtxt import InstanceGroup, ModelConfig, render_pbtxt
from trt_spec.deploy.repository import REPOSITORY_KIND, VERSION_FOLDER
from trt_spec.deploy.shell_words import join_words
from trt_spec.errors import SpecError
from trt_spec.plan.finding import is_refused
from trt_spec.plan.llmapi import TRITON_SETTINGS, LlmapiPlan, plan_llmapi
from trt_spec.plan.llmapi_comparison import SERVE_YAML, plan_serve_yaml, plan_trtllm_serve, plan_vllm
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.spec.model import Spec

COMPARISON_FOLDER = "compare"
COMPARISON_KIND = "comparison commands"


def write_llmapi(workspace: Workspace, spec: Spec) -> Path:
    """Write repository and comparison of a spec to its workspace, and return the path of the repository.

    The caller holds the workspace (``exclusive``). Both destinations are looked at before either is written. Raises
    SpecError as the two writers do.
    """
    comparison = workspace.root / COMPARISON_FOLDER
    check_replaceable(workspace.repository, REPOSITORY_KIND)
    check_replaceable(comparison, COMPARISON_KIND)
    written = write_llmapi_repository(spec, workspace.repository)
    write_comparison(spec, comparison)
    return written


def write_llmapi_repository(spec: Spec, destination: Path) -> Path:
    """Write the model repository to ``destination``, all of it or nothing, and return the absolute path.

    Raises SpecError for a spec that cannot be served so and a destination that holds anything else,
    EnvironmentMissing without tritonclient.
    """
    plan = plan_served(spec)
    dialect = load_llmapi_template(spec.tensorrt_llm)
    about = {
        "deployment": spec.name,
        "deployment_id": resolve_llmapi_id(spec),
        "backend": spec.backend,
        "tensorrt_llm": spec.tensorrt_llm,
        "container": plan.image,
        "dialect": {"recorded": dialect.recorded, "trust": dialect.trust, "provenance": dialect.provenance},
        "speculative_config": {"since": plan.dialect.since, "trust": plan.dialect.trust, "source": plan.dialect.source},
        "models": [TARGET_MODEL],
    }
    return write_owned_folder(destination, REPOSITORY_KIND, render_llmapi_repository(plan, dialect), about)


def write_comparison(spec: Spec, destination: Path) -> Path:
    """Write the commands that serve the same models otherwise, and return the absolute path. Raises SpecError."""
    texts = render_comparison(plan_served(spec))
    return write_owned_folder(destination, COMPARISON_KIND, texts, {"deployment": spec.name})


def render_llmapi_repository(plan: LlmapiPlan, dialect: Dialect) -> dict[str, str]:
    """The files of the repository: relative path -> text."""
    version = f"{TARGET_MODEL}/{VERSION_FOLDER}"
    return {
        f"{TARGET_MODEL}/config.pbtxt": render_pbtxt(plan_llmapi_config(dialect)),
        f"{version}/{LLMAPI_FILE}": _render_yaml(plan.model_yaml()),
        f"{version}/model.py": Path(llmapi_model.__file__).read_text(encoding="utf-8"),
    }


def plan_llmapi_config(dialect: Dialect) -> ModelConfig:
    """The typed config.pbtxt, with every tensor of NVIDIA's template. A split model is one instance, too."""
    template = dialect.models[TARGET_MODEL]
    return ModelConfig(
        name=TARGET_MODEL,
        backend=PYTHON_BACKEND,
        max_batch_size=int(TRITON_SETTINGS["max_batch_size"]),
        inputs=template.inputs,
        outputs=template.outputs,
        decoupled=bool(TRITON_SETTINGS["decoupled"]),
        instance_group=InstanceGroup(),
    )


def render_comparison(plan: LlmapiPlan) -> dict[str, str]:
    """The files of the comparison: relative path -> text."""
    spec = plan.spec
    return {
        SERVE_YAML: _render_yaml(plan_serve_yaml(plan)),
        "trtllm-serve.sh": _render_script(
            f"The models of {spec.name} under trtllm-serve, where TensorRT-LLM {spec.tensorrt_llm} is installed.",
            plan_trtllm_serve(plan, SERVE_YAML),
        ),
        "vllm.sh": _render_script(
            f"The models of {spec.name} under vLLM, where it is installed; options of its releases of 2026.",
            plan_vllm(spec),
        ),
    }


def resolve_llmapi_id(spec: Spec) -> str:
    """An id of what is deployed: equal for specs that differ in ports and host alone."""
    text = spec.model_dump_json(exclude={"serve"})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan_served(spec: Spec) -> LlmapiPlan:
    """The plan of a spec that can be served. Raises SpecError for one that the plan itself refuses."""
    plan = plan_llmapi(spec)
    if is_refused(plan.findings):
        first = next(finding for finding in plan.findings if finding.severity == "refuse")
        raise SpecError(first.message, remedy=first.remedy)
    return plan


def _render_yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def _render_script(comment: str, argv: tuple[str, ...]) -> str:
    return f'#!/bin/sh\n# {comment}\nset -eu\ncd "$(dirname "$0")"\nexec {join_words(argv)} "$@"\n'
