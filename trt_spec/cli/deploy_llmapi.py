"""What ``trtspec plan`` checks, before backend llmapi is deployed: no build stands between that would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trt_spec.build.source.model_files import load_model_files
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.llmapi_checks import check_llmapi_models
from trt_spec.plan.model_files import ModelFiles
from trt_spec.spec.model import Model, Role, Spec
from trt_spec.spec.reference import judge_reference
from trt_spec.util.cache import resolve_cache_dir


def check_models(spec: Spec) -> Iterator[str]:
    """What the user should read of the models of a spec, one line each. Asks no network.

    Raises SpecError for what the plan refuses, as far as the models are known here: built in, in the cache, or in a
    folder of this machine.
    """
    files: dict[Role, ModelFiles] = {}
    for role, model in spec.models().items():
        try:
            if _is_elsewhere(model):
                raise EnvironmentMissing(f"{model.model} is no folder of this machine.")
            files[role] = load_model_files(
                model.model, revision=model.revision, cache_dir=resolve_cache_dir(), offline=True
            )
        except EnvironmentMissing:
            yield (
                f"note: {role}: {model.model} is not on this machine, so neither its tokenizer nor its lengths and "
                "split were checked. `trtspec plan` checks them where it can read the model."
            )
    _, findings = check_llmapi_models(spec, files)
    refused = next((finding for finding in findings if finding.severity == "refuse"), None)
    if refused is not None:
        raise SpecError(f"The plan cannot work: {refused.message}", remedy=refused.remedy)
    for finding in findings:
        if finding.severity == "warn":
            yield f"warn: {finding.message} {finding.remedy}".rstrip()


def _is_elsewhere(model: Model) -> bool:
    """A folder of the GPU host, where the deployment may be copied to."""
    return judge_reference(model.model) == "folder" and not Path(model.model).expanduser().exists()
