"""Repositories of launch targets name paths of a container; in a workspace they are found without --mount."""

import json

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.targets.target import CONTAINER_ROOT


def test_the_workspace_around_a_targets_repository_is_its_mount(nvidia, tmp_path):
    workspace = tmp_path / "workspace"
    engine = workspace / "engines" / "target"
    engine.mkdir(parents=True)
    (engine / "config.json").write_text(json.dumps({"version": "0.19.0"}))
    repository = nvidia("0.18.2")
    repository.change(
        "tensorrt_llm",
        parameters={
            **repository.config("tensorrt_llm").parameters,
            "gpt_model_path": f"{CONTAINER_ROOT}/engines/target",
        },
    )
    root = workspace / "compose" / "repository"
    root.parent.mkdir()
    repository.root.rename(root)
    assert inspect_repository(root, CheckOptions()).version_reason.startswith("0.18.2")
    (workspace / "manifest.json").write_text("{}")
    assert inspect_repository(root, CheckOptions()).version_reason.startswith("0.19.0, the engine of tensorrt_llm")
