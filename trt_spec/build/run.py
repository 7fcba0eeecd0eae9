"""`trtspec build`: runs the planned steps whose outputs are not there yet, and writes the workspace's manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trt_spec import __version__
from trt_spec.build.digests import load_digests
from trt_spec.build.onnx.tools import resolve_tools
from trt_spec.build.source.resolve import load_model_folder
from trt_spec.build.source.shards import load_json_object
from trt_spec.build.store import is_finished, run_step
from trt_spec.errors import SpecError
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.fingerprint import resolve_fingerprint
from trt_spec.plan.manifest import EngineEntry, Manifest, render_manifest
from trt_spec.plan.steps import Step, plan_onnx_steps
from trt_spec.plan.vocabulary import check_same_vocabulary, load_vocabulary
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role, Spec
from trt_spec.util.cache import resolve_cache_dir
from trt_spec.util.files import exclusive, write_text_atomic

SOURCE_PATTERNS = ("config.json", "generation_config.json", "tokenizer*.json", "chat_template.jinja", "*.safetensors")

ReportProgress = Callable[[str, float | None], None]
"""Called with what is being done and the fraction done, None where it cannot be known."""


@dataclass(frozen=True)
class BuildOptions:
    """``force`` makes every engine again; ``cache_dir`` holds downloaded models and remembered digests."""

    spec: Spec
    workspace: Workspace
    force: bool = False
    cache_dir: Path | None = None


def run_build(options: BuildOptions, report: ReportProgress) -> tuple[Manifest, list[str]]:
    """Makes what is missing; the manifest and the ids of the steps that ran.

    Raises SpecError for models that cannot be built or do not belong together, before any engine is made.
    """
    spec, workspace = options.spec, options.workspace
    _check_backend(spec)
    cache_dir = options.cache_dir or resolve_cache_dir()
    sources = {
        role: load_model_folder(model.model, cache_dir=cache_dir, progress=lambda text: report(text, None))
        for role, model in spec.models().items()
    }
    _check_pair(sources)
    workspace.root.mkdir(parents=True, exist_ok=True)
    with exclusive(workspace.root):
        return _run_steps(options, sources, cache_dir, report)


def _run_steps(
    options: BuildOptions, sources: Mapping[Role, Path], cache_dir: Path, report: ReportProgress
) -> tuple[Manifest, list[str]]:
    ran: list[str] = []
    engines: dict[str, EngineEntry] = {}
    for step in plan_onnx_steps(options.spec):
        entry, made = _build_engine(step, sources[step.role], options, cache_dir, report)
        engines[step.role] = entry
        ran.extend([step.id] if made else [])
    manifest = Manifest(trtspec=__version__, spec=options.spec, engines=engines)
    text, path = render_manifest(manifest), options.workspace.manifest
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text_atomic(path, text)
    return manifest, ran


def _check_backend(spec: Spec) -> None:
    if spec.backend != "onnx":
        raise SpecError(
            f"backend {spec.backend} cannot be built by this version of trtspec, which builds onnx engines.",
            remedy="Rehearse the pair with `backend: onnx` (trtspec init NAME --preset smollm2-cpu).",
        )


def _check_pair(sources: Mapping[Role, Path]) -> None:
    if "draft" in sources and sources["draft"] != sources["target"]:
        check_same_vocabulary(load_vocabulary(sources["target"]), load_vocabulary(sources["draft"]))
    else:
        load_vocabulary(sources["target"])


def _build_engine(
    step: Step, source: Path, options: BuildOptions, cache_dir: Path, report: ReportProgress
) -> tuple[EngineEntry, bool]:
    """The entry of the manifest, and whether the engine had to be made."""
    folder = options.workspace.engine(step.role)
    files = sorted({file for pattern in SOURCE_PATTERNS for file in source.glob(pattern)})
    inputs, tools = load_digests(files, cache_dir), resolve_tools()
    fingerprint = resolve_fingerprint(step.kind, step.params, inputs, tools)
    made = options.force or not is_finished(folder, fingerprint)
    if made:

        def make(partial: Path) -> None:
            # Imported here: a build with nothing to make does not wait for onnx to load.
            from trt_spec.build.onnx.engine import write_engine

            write_engine(source, step.params, partial, lambda done: report(f"building the {step.role} engine", done))

        run_step(step, fingerprint, inputs, tools, folder, make)
    config_file = source / "config.json"
    facts = resolve_facts(load_json_object(config_file), source=str(config_file))
    entry = EngineEntry(
        fingerprint=fingerprint,
        source=step.source,
        vocab_size=facts.vocab_size,
        max_seq_len=step.params["max_seq_len"],
        max_draft_len=step.params["max_draft_len"],
    )
    return entry, made
