"""From a spec's model reference to what is known of the model without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trt_spec.build.source.resolve import check_pointers, find_cached_model
from trt_spec.build.source.shards import CONFIG_NAME, INDEX_NAME, SINGLE_NAME, load_tensor_spans, load_weight_map
from trt_spec.build.source.small_files import NEEDED_NAMES, load_small_files
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.model_files import ModelFiles, TensorInfo
from trt_spec.spec.reference import judge_reference


def load_model_files(reference: str, *, revision: str | None, cache_dir: Path, offline: bool) -> ModelFiles:
    """Return the small files and tensor headers of a model, never its weights.

    A local folder is read as it is. The demo model comes from the cache if it was made before. A hub id is fetched
    (small files and header ranges only); where the hub cannot be read, and always when ``offline``, a well-known model
    is answered from its built-in facts, and ``ModelFiles.origin`` says so. ``cache_dir`` is trtspec's own cache.

    Raises SpecError for a reference or file that is wrong; EnvironmentMissing when the hub cannot be reached or wants a
    login, with the files to provide instead.
    """
    kind = judge_reference(reference)
    if kind == "folder":
        folder = Path(reference).expanduser().absolute()
        return load_small_files(
            folder, reference=reference, origin=f"local folder {folder}", tensors=_load_tensors(folder)
        )
    if kind == "pypi":
        cached = find_cached_model(reference, cache_dir)
        known = load_known_model(reference)
        if cached is None and known is not None:
            return known
        if cached is not None:
            return load_small_files(
                cached, reference=reference, origin=f"cached demo model {cached}", tensors=_load_tensors(cached)
            )
    if kind == "hub":
        return _load_hub(reference, revision, cache_dir, offline)
    raise SpecError(
        f"The model reference {reference!r} is unknown.", remedy="Give a folder or a hub id written owner/name."
    )


def _load_hub(reference: str, revision: str | None, cache_dir: Path, offline: bool) -> ModelFiles:
    known = load_known_model(reference)
    if known is not None and revision is not None:
        known = replace(known, origin=f"{known.origin}, of no particular revision")
    if offline and known is not None:
        return known
    from trt_spec.build.source.hub import load_hub_files

    try:
        return load_hub_files(reference, revision=revision, cache_dir=cache_dir, offline=offline)
    except EnvironmentMissing as error:
        if known is None:
            raise
        return replace(known, origin=f"{known.origin}, since the hub was not read: {error.found}")


def _load_tensors(folder: Path) -> Mapping[str, TensorInfo] | None:
    """Tensors of a folder by its headers; None for a folder that was given without weights, to plan with."""
    if not folder.is_dir():
        raise SpecError(
            f"The model folder {folder} does not exist." if not folder.exists() else f"The model {folder} is a file.",
            remedy="Name the folder that holds config.json; a relative path counts from the spec file's folder.",
        )
    if not (folder / CONFIG_NAME).is_file():
        raise SpecError(
            f"The model folder {folder} has no {CONFIG_NAME}, so it is no Hugging Face checkpoint.",
            remedy=f"To plan, put these there: {', '.join(NEEDED_NAMES)} (as far as the model has them).",
        )
    check_pointers(folder)
    if not _has_weights(folder):
        return None
    return {name: TensorInfo(span.dtype, span.shape) for name, (_, span) in load_tensor_spans(folder).items()}


def _has_weights(folder: Path) -> bool:
    """Whether any shard is there: an index alone is among the small files that people copy, half a set is a fault."""
    if (folder / SINGLE_NAME).exists():
        return True
    index = folder / INDEX_NAME
    return index.exists() and any((folder / shard).exists() for shard in set(load_weight_map(index).values()))
