"""The files of Medusa heads: one safetensors file of tensors and its config.json, in a folder or on the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trt_spec.build.source.resolve import check_pointers
from trt_spec.build.source.shards import CONFIG_NAME, load_json_object
from trt_spec.errors import SpecError
from trt_spec.plan.model_files import ModelFiles, TensorInfo
from trt_spec.spec.reference import judge_reference
from trt_spec.util.safetensors_header import TensorSpan, load_header

HEADS_NAME = "medusa_lm_head.safetensors"  # as FasterDecoding/Medusa and TensorRT-LLM call it
_PICKLES = ("*.pt", "*.pth", "*.bin", "*.ckpt")


def load_head_files(reference: str | None, *, cache_dir: Path) -> ModelFiles | None:
    """Config and tensor headers of the heads that a spec names; None if it names none.

    Raises SpecError for a folder without heads or with pickled ones, EnvironmentMissing for a hub that cannot be read.
    """
    if reference is None:
        return None
    if judge_reference(reference) == "folder":
        return read_head_folder(Path(reference).expanduser().absolute(), reference)
    from trt_spec.build.source.hub import load_hub_files

    return load_hub_files(reference, revision=None, cache_dir=cache_dir, offline=False, single=HEADS_NAME)


def read_head_folder(folder: Path, reference: str) -> ModelFiles:
    """``load_head_files`` of a folder; one with config.json alone serves to plan with. Raises SpecError."""
    if not folder.is_dir():
        raise SpecError(
            f"The folder of Medusa heads {folder} does not exist.",
            remedy="Correct speculation.heads; a relative path counts from the spec file's folder.",
        )
    check_pointers(folder)
    config = load_json_object(folder / CONFIG_NAME) if (folder / CONFIG_NAME).is_file() else {}
    spans = load_head_spans(folder) if not config or find_head_file(folder) is not None else None
    tensors = None if spans is None else {name: TensorInfo(span.dtype, span.shape) for name, span in spans.items()}
    return ModelFiles(reference, f"local folder {folder}", config, tensors=tensors)


def load_head_spans(folder: Path) -> Mapping[str, TensorSpan]:
    """Every tensor of the heads in ``folder``, by its header. Raises SpecError as ``read_head_folder`` does."""
    file = find_head_file(folder)
    if file is None:
        raise SpecError(
            f"The folder of Medusa heads {folder} has no {HEADS_NAME}.",
            remedy="Name the folder that holds it, with the config.json of the heads.",
        )
    return load_header(file)


def find_head_file(folder: Path) -> Path | None:
    """The file of the heads: by its usual name, else the only safetensors file.

    Raises SpecError for pickled heads and for several files, of which none has the usual name.
    """
    if (folder / HEADS_NAME).is_file():
        return folder / HEADS_NAME
    files = sorted(folder.glob("*.safetensors"))
    if len(files) > 1:
        raise SpecError(
            f"The folder of Medusa heads {folder} has {len(files)} safetensors files ({files[0].name}, ...), none of "
            f"them called {HEADS_NAME}.",
            remedy="Name the folder of the heads alone. A ModelOpt checkpoint that holds its heads is the target: "
            "leave speculation.heads out.",
        )
    if files:
        return files[0]
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise _pickled(folder, pickles[0])
    return None


def _pickled(folder: Path, name: str) -> SpecError:
    return SpecError(
        f"The Medusa heads of {folder} are pickled ({name}), expected {HEADS_NAME}: loading a pickle runs whatever "
        "code it carries.",
        remedy="Convert them where torch and safetensors are installed; weights_only takes nothing but tensors: python "
        "-c \"import torch; from safetensors.torch import save_file; heads = torch.load('"
        f"{name}', map_location='cpu', weights_only=True); save_file({{k: v.contiguous() for k, v in heads.items()}}, "
        f"'{HEADS_NAME}')\"",
    )
