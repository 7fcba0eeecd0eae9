"""A model repository read once, for all rules; what cannot be read becomes a finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from trt_spec.deploy.check.engine_config import section
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.kinds import find_kind, is_placeholder
from trt_spec.deploy.check.options import CheckOptions, complete_gpus
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.deploy.check.pbtxt_lines import Lines, parse_lines
from trt_spec.deploy.check.reading import (
    MAX_CONFIG_BYTES,
    FaultKind,
    ReadFault,
    is_file_at,
    is_folder,
    is_folder_at,
    list_folder,
    look_at,
    read_json_object,
    read_text,
    shorten,
    shown,
)
from trt_spec.deploy.check.version import resolve_meant, resolve_version
from trt_spec.deploy.check.view import EngineView, ModelView, RepositoryView
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.parameter_names import ENGINE_PATH, MODEL_CONFIG
from trt_spec.deploy.pbtxt import ModelConfig, PbtxtError, parse_pbtxt
from trt_spec.deploy.targets.target import CONTAINER_ROOT
from trt_spec.errors import SpecError
from trt_spec.plan.workspace import Workspace

_MAX_HOLES = 100  # told of one file
_NOT_LOADED = "Triton takes every folder of a repository for a model, and one that fails keeps the server from starting"


def load_repository(root: Path, options: CheckOptions) -> tuple[RepositoryView, list[CheckFinding]]:
    """Return the repository at ``root`` and what could not be read of it.

    Raises SpecError for a root that cannot be listed and for a stated version without recorded templates.
    """
    entries, fault = list_folder(root)
    if fault:
        raise SpecError(f"{root} {fault}.", remedy="Name a folder that you may read.")
    options = complete_gpus(_with_workspace(root, options), root)
    models, findings = {}, []
    for entry in entries:
        if entry.name.startswith(".") and is_folder(entry):
            findings.append(_hidden(shown(entry.name)))
        elif is_folder(entry):
            model, found = _load_model(root / entry.name)
            models[model.name] = model
            findings += found
        elif entry.is_symlink() and look_at(root / entry.name)[1] is not None:
            findings.append(_dangling(shown(entry.name)))
    marker = read_json_object(root / MARKER_FILE)[0]
    marker = marker if isinstance(section(marker).get("files"), dict) else None
    engines = {view.model: view for view in _load_engines(models, options)}
    meant = resolve_meant(options, marker)
    dialect, reason, is_guess = resolve_version(meant, engines, models.values())
    return RepositoryView(root, models, dialect, reason, meant, marker, engines, options, is_guess), findings


def load_engine(model: str, named: str, options: CheckOptions) -> EngineView:
    """Return the engine folder that ``named`` leads to on this machine, with its config.json."""
    folder = options.locate(named)
    if folder is None:
        return EngineView(model, named, None, None, "is no absolute path")
    fault = look_at(folder)[1]
    if fault is not None and fault.kind is FaultKind.REFUSED:
        return EngineView(model, named, folder, None, str(fault))
    if not is_folder_at(folder):
        return EngineView(model, named, None, None, "does not exist here")
    config, fault = read_json_object(folder / CONFIG_FILE)
    return EngineView(model, named, folder, config, f"{CONFIG_FILE} {fault}" if fault else "")


def _load_model(folder: Path) -> tuple[ModelView, list[CheckFinding]]:
    name = shown(folder.name)
    view = ModelView(folder, name, f"{name}/{MODEL_CONFIG}", "", None)
    text, fault = read_text(folder / MODEL_CONFIG, MAX_CONFIG_BYTES)
    if fault:
        return view, [_unreadable(view, fault)]
    lines = parse_lines(text)
    config, found = _parse(text, view.file, lines)
    return replace(view, text=text, config=config, lines=lines), found


def _parse(text: str, file: str, lines: Lines) -> tuple[ModelConfig | None, list[CheckFinding]]:
    """Placeholders outside strings are what keeps a template from parsing, so each is named instead of the first."""
    holes = [hole for hole in lines.placeholders if not hole.in_string]
    if holes:
        return None, [
            CheckFinding(
                "placeholder",
                "error",
                file,
                hole.line,
                f"{'.'.join(hole.path) or 'this line'} is still the template's ${{{hole.name}}}",
                "it is no value, so Triton cannot parse the file and loads no model of the repository",
                f"Fill it in: fill_template.py -i {file} {hole.name}:VALUE",
            )
            for hole in holes[:_MAX_HOLES]
        ]
    try:
        return parse_pbtxt(text, file), []
    except PbtxtError as error:
        return None, [
            CheckFinding(
                "config-syntax",
                "error",
                file,
                error.line,
                shorten(error.reason),
                "Triton cannot parse the file and loads no model of the repository",
                "Correct the line; the fields are those of Triton's model_config.proto.",
            )
        ]


def _load_engines(models: Mapping[str, ModelView], options: CheckOptions) -> Iterator[EngineView]:
    for model in models.values():
        if find_kind(model) != "engine" or model.config is None:
            continue
        named = model.config.parameters.get(ENGINE_PATH, "")
        if named and not is_placeholder(named):
            yield load_engine(model.name, named, options)


def _with_workspace(root: Path, options: CheckOptions) -> CheckOptions:
    """The repositories of our targets name paths of a container, where the workspace around them is mounted."""
    around = root.absolute().parents
    if len(around) < 2 or not is_file_at(Workspace(around[1]).manifest):
        return options
    return replace(options, mounts=(*options.mounts, (CONTAINER_ROOT, around[1])))


def _unreadable(view: ModelView, fault: ReadFault) -> CheckFinding:
    if fault.kind is FaultKind.MISSING:
        # Triton can complete the configuration of such a model by itself, if it was not told not to.
        is_model = _has_other_model_file(view.folder)
        return CheckFinding(
            "config-missing",
            "warning" if is_model else "error",
            view.file,
            None,
            f"the folder {view.name} has no {MODEL_CONFIG}",
            _NOT_LOADED,
            f"Write {view.file}, or move the folder out of the repository.",
        )
    return CheckFinding(
        "config-unreadable",
        "error",
        view.file,
        None,
        f"{view.file} {fault}",
        "Triton has to read it as text",
        "Put a text file there that Triton's user may read.",
    )


def _has_other_model_file(folder: Path) -> bool:
    """Whether a version folder holds the model of a backend that is not Python: model.onnx, model.plan."""
    versions = (entry for entry in list_folder(folder)[0] if entry.name[:1] in "123456789" and is_folder(entry))
    names = (entry.name for version in versions for entry in list_folder(Path(version.path))[0])
    return any(name.startswith("model.") and not name.startswith("model.p") for name in names)


def _hidden(name: str) -> CheckFinding:
    return CheckFinding(
        "hidden-folder",
        "warning",
        name,
        None,
        f"{name} is a hidden folder in the repository",
        _NOT_LOADED,
        f"Move {name} out of the repository.",
    )


def _dangling(name: str) -> CheckFinding:
    return CheckFinding(
        "broken-link",
        "warning",
        name,
        None,
        f"{name} is a link that leads nowhere",
        "what it stood for is missing",
        f"Remove {name}, or put back what it points to.",
    )
