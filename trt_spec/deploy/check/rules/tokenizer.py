"""Tokenizer folders of NVIDIA's preprocessing and postprocessing, and of our orchestrator (B033, B034, T002).

NVIDIA's models load them by transformers' AutoTokenizer with trust_remote_code on (preprocessing/1/model.py, v0.18.2):
what is no folder is taken for the name of a repository on the Hub, and code in the folder is run. Our orchestrator
reads tokenizer.json and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trt_spec.deploy.check.finding import CheckFinding, CheckSeverity
from trt_spec.deploy.check.kinds import find_kind, is_ours
from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.reading import FaultKind, ReadFault, list_folder, read_json_object
from trt_spec.deploy.check.rules.reading import parameter
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.deployment import TOKENIZER_FILE
from trt_spec.deploy.parameter_names import TOKENIZER_DIR
from trt_spec.deploy.repository import VERSION_FOLDER

SENTENCEPIECE_FILE = "tokenizer.model"
SETTINGS_FILE = "tokenizer_config.json"
_MAX_TOKENIZER_BYTES = 256 << 20  # Gemma's has 33 MB
_NEWER_CLASS = "TokenizersBackend"  # written by transformers 5, unknown to 4.x


def check_tokenizers(view: RepositoryView) -> Iterator[CheckFinding]:
    """Every tokenizer_dir leads to a folder with the files of a tokenizer."""
    for model in view.models.values():
        named = parameter(model, TOKENIZER_DIR)
        if named is None:
            continue
        if find_kind(model) == "orchestrator" and is_ours(model):
            yield from _check_ours(model, named)
        elif find_kind(model) in ("preprocessing", "postprocessing"):
            yield from _check_theirs(model, named, view.options)


def _check_ours(model: ModelView, named: str) -> Iterator[CheckFinding]:
    """Our orchestrator counts the path from its version folder."""
    names, fault = _list(model.folder / VERSION_FOLDER / named)
    if fault is not None and fault.kind is FaultKind.REFUSED:
        return  # a folder of the model that may not be read is reported as such
    if TOKENIZER_FILE not in names:
        lacks = "has" if fault is None else f"{fault}, so there is"
        yield _fault(
            model,
            "tokenizer-files",
            f"{model.name}: {VERSION_FOLDER}/{named[:200]} {lacks} no {TOKENIZER_FILE}",
            "the orchestrator turns text into tokens with it, and does not start without",
            f"Copy the model's {TOKENIZER_FILE} there, or run `trtspec deploy` again.",
        )
    else:
        yield from _check_contents(model, model.folder / VERSION_FOLDER / named)


def _check_theirs(model: ModelView, named: str, options: CheckOptions) -> Iterator[CheckFinding]:
    folder = options.locate(named)
    names, fault = _list(folder) if folder is not None else (frozenset(), None)
    if folder is None:
        yield _fault(
            model,
            "tokenizer-hub",
            f"{model.name}: tokenizer_dir {named[:200]!r} is no absolute path of a folder",
            "the start would try to download it from the Hub",
            "Download the tokenizer, mount its folder, and set tokenizer_dir to the path in the container.",
        )
    elif fault is not None and fault.kind is FaultKind.REFUSED:
        yield _fault(
            model,
            "tokenizer-unreadable",
            f"{model.name}: tokenizer_dir {named[:200]!r} {fault}",
            "Triton and the model's code run as their own user and have to read it",
            f"chmod -R a+rX {folder}",
            "warning",
        )
    elif fault is not None:
        mounts = ", ".join(f"{prefix} is {here}" for prefix, here in options.mounts) or "none given"
        yield _fault(
            model,
            "tokenizer-missing",
            f"{model.name}: tokenizer_dir {named[:200]!r} does not exist in container (mounts: {mounts})",
            "a path that does not exist is taken for a Hub id, and the start would try to download it",
            "Set tokenizer_dir to the path in the container; tell `trtspec check` what is mounted with --mount.",
        )
    elif TOKENIZER_FILE not in names and SENTENCEPIECE_FILE not in names and not _runs_code(folder):
        yield _fault(
            model,
            "tokenizer-files",
            f"{model.name}: {folder} has neither {TOKENIZER_FILE} nor {SENTENCEPIECE_FILE}",
            "no tokenizer can be loaded from it",
            f"Copy {TOKENIZER_FILE}, or {SENTENCEPIECE_FILE} with {SETTINGS_FILE}, from the model there.",
        )
    else:
        yield from _check_settings(model, folder, names, options)


def _check_settings(
    model: ModelView, folder: Path, names: frozenset[str], options: CheckOptions
) -> Iterator[CheckFinding]:
    if TOKENIZER_FILE in names:
        yield from _check_contents(model, folder)
    settings = read_json_object(folder / SETTINGS_FILE)[0] or {}
    if settings.get("auto_map") and not options.trust_remote_code:
        yield _fault(
            model,
            "tokenizer-code",
            f"{model.name}: {folder / SETTINGS_FILE} has auto_map, which names Python code of the model's own",
            "the model loads the tokenizer with trust_remote_code, so that code would run in the server",
            "Read the code; then say --trust-remote-code, or use a tokenizer that has only data files.",
        )
    packages = _packages(names)
    if packages and (settings.get("auto_map") or TOKENIZER_FILE not in names):
        yield _fault(
            model,
            "tokenizer-packages",
            f"{model.name}: the tokenizer in {folder} needs the Python package {' and '.join(packages)}",
            "the model does not load where it is missing",
            f"See that the container has it: pip install {' '.join(packages)}",
            "note",
        )
    if settings.get("tokenizer_class") == _NEWER_CLASS:
        yield _fault(
            model,
            "tokenizer-class",
            f'{model.name}: tokenizer_class is "{_NEWER_CLASS}" in {folder / SETTINGS_FILE}',
            "transformers 5 wrote it, and the 4.x of most containers knows no such class",
            "Change the field tokenizer_class in that file to PreTrainedTokenizerFast.",
            "warning",
        )


def _check_contents(model: ModelView, folder: Path) -> Iterator[CheckFinding]:
    fault = read_json_object(folder / TOKENIZER_FILE, _MAX_TOKENIZER_BYTES)[1]
    if fault is not None and fault.kind is not FaultKind.REFUSED:
        yield _fault(
            model,
            "tokenizer-broken",
            f"{model.name}: {folder / TOKENIZER_FILE} {fault}",
            "no tokenizer can be loaded from it",
            f"Copy the model's {TOKENIZER_FILE} again: it is cut, or a Git LFS pointer.",
        )


def _runs_code(folder: Path) -> bool:
    """Whether the folder brings code that may read files of any name."""
    return bool((read_json_object(folder / SETTINGS_FILE)[0] or {}).get("auto_map"))


def _packages(names: frozenset[str]) -> list[str]:
    """Packages by file type; tokenizer.json needs none beside transformers' own."""
    needed = {
        "sentencepiece": SENTENCEPIECE_FILE in names,
        "tiktoken": any(name.endswith(".tiktoken") for name in names),
    }
    return [package for package, is_needed in needed.items() if is_needed]


def _list(folder: Path) -> tuple[frozenset[str], ReadFault | None]:
    """The names in a folder, and why they cannot be listed."""
    entries, fault = list_folder(folder)
    return frozenset(entry.name for entry in entries), fault


def _fault(
    model: ModelView, code: str, what: str, why: str, remedy: str, severity: CheckSeverity = "error"
) -> CheckFinding:
    return found_parameter(model, TOKENIZER_DIR, code, severity, what, why, remedy)


RULES = (check_tokenizers,)
