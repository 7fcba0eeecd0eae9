"""The small files of a Hugging Face checkpoint: everything that plans need but the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trt_spec.build.source.shards import CONFIG_NAME, load_json_object
from trt_spec.errors import SpecError
from trt_spec.plan.model_files import ModelFiles, TensorInfo

# Optional files by the field of ModelFiles that holds them.
OPTIONAL_NAMES = {
    "generation_config": "generation_config.json",
    "tokenizer": "tokenizer.json",
    "tokenizer_config": "tokenizer_config.json",
    "quantization": "hf_quant_config.json",
}
CHAT_TEMPLATE_NAME = "chat_template.jinja"  # where transformers writes the template since 4.51
NEEDED_NAMES = (CONFIG_NAME, *OPTIONAL_NAMES.values())
SOURCE_PATTERNS = (*NEEDED_NAMES, "tokenizer*.json", CHAT_TEMPLATE_NAME, "*.safetensors")
"""All files that decide what is built from a checkpoint."""


def load_small_files(
    folder: Path, *, reference: str, origin: str, tensors: Mapping[str, TensorInfo] | None
) -> ModelFiles:
    """Read the small files of ``folder``; a missing one gives an empty field, but config.json must be there.

    Raises SpecError naming the file that cannot be read.
    """
    fields: dict[str, Any] = {
        field: load_json_object(folder / name) for field, name in OPTIONAL_NAMES.items() if (folder / name).is_file()
    }
    files = ModelFiles(
        reference=reference, origin=origin, config=load_json_object(folder / CONFIG_NAME), tensors=tensors, **fields
    )
    template = folder / CHAT_TEMPLATE_NAME
    if not template.is_file():
        return files
    settings: dict[str, Any] = {**files.tokenizer_config, "chat_template": _load_text(template)}
    return replace(files, tokenizer_config=settings)


def _load_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SpecError(f"Cannot read {path}: {error}.", remedy="Download the file again.") from error
