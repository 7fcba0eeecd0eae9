"""What verify needs to know of a deployment that trtspec itself made: its address, tokenizer, data type and names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.plan.manifest import load_manifest, resolve_deployment_id
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Draft, Model, Spec
from trt_spec.verify.judge import near_tie_gap
from trt_spec.verify.run import DEFAULT_MAX_TOKENS, VerifyOptions
from trt_spec.verify.thresholds import Thresholds

# A server bound to all addresses is reached over the loopback one.
_REACHED_AS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def resolve_options(spec: Spec, workspace: Workspace) -> VerifyOptions:
    """Options for the server that ``trtspec serve`` runs on this workspace, or for the spec's own ports if none runs.

    Raises SpecError when server.json of the workspace cannot be read, and for a spec without a draft or heads: there is
    nothing to compare.
    """
    drafts_inside = spec.speculation.mode == "medusa"
    if spec.draft is None and not drafts_inside:
        raise SpecError(
            f"The spec {spec.name!r} serves its target alone, so there is no speculation to verify.",
            remedy="Add a draft section, build, deploy and serve it, then verify.",
        )
    engine = workspace.engine("target")
    return VerifyOptions(
        url=resolve_url(spec, workspace),
        metrics_url=f"http://{_address(spec, workspace, 'metrics_port')}/metrics",
        tokenizer_folder=engine if (engine / "tokenizer.json").is_file() else None,
        near_tie_gap=near_tie_gap(_resolve_dtype(spec, engine)),
        num_draft_tokens=None if drafts_inside else spec.speculation.max_draft_len,
        max_tokens=min(DEFAULT_MAX_TOKENS, spec.limits.max_output_len),
        models={role: _describe_model(model) for role, model in spec.models().items()},
        report_folder=workspace.reports,
        thresholds=Thresholds(spec.verify.min_speedup, spec.verify.max_p99_ttft_ms, spec.verify.lossless),
    )


def resolve_url(spec: Spec, workspace: Workspace) -> str:
    """HOST:PORT of gRPC: of the server that runs on this workspace, or the spec's own if none runs.

    Raises SpecError when server.json cannot be read, or tells of an older build.
    """
    return _address(spec, workspace, "grpc_port")


def _address(spec: Spec, workspace: Workspace, port: str) -> str:
    server = _read_json(workspace.root / "server.json")
    _check_current(server, workspace)
    host = server.get("host", spec.serve.host)
    return f"{_REACHED_AS.get(host, host)}:{server.get(port, getattr(spec.serve, port))}"


def _check_current(server: dict[str, Any], workspace: Workspace) -> None:
    """A server that was started before the last build would be verified under the new build's name."""
    served = server.get("deployment_id")
    if served and workspace.manifest.is_file() and served != resolve_deployment_id(load_manifest(workspace)):
        raise SpecError(
            f"The server of {workspace.root} was started on an older build of this spec.",
            remedy="Run `trtspec stop`, `trtspec deploy` and `trtspec serve` again, then verify.",
        )


def _describe_model(model: Model) -> str:
    kept = model.layers if isinstance(model, Draft) else None
    layers = "" if kept is None else f", layers {', '.join(map(str, kept))} alone"
    return f"{model.model} ({model.dtype}, quantization {model.quantization}{layers})"


def _resolve_dtype(spec: Spec, engine: Path) -> str | None:
    if spec.backend == "onnx":
        return "float32"
    if spec.target.dtype != "auto":
        return spec.target.dtype
    dtype = _read_json(engine / "config.json").get("pretrained_config", {}).get("dtype")
    return dtype if isinstance(dtype, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{path} cannot be read as JSON: {error}.", remedy="Run the step that writes it again."
        ) from error
    if not isinstance(value, dict):
        raise SpecError(f"{path}: a JSON object was expected.", remedy="Run the step that writes it again.")
    return value
