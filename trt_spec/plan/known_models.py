"""Built-in facts of well-known models, so that their pairs can be planned without a network.

The data is known_models.json: shapes as published, tokenizer families in place of tokenizer files. Its "about" says
where the figures come from; a record with "trust" is partly from memory.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.plan.model_files import ModelFiles

DATA_PATH = Path(__file__).with_name("known_models.json")


@dataclass(frozen=True)
class TokenizerFamily:
    """A tokenizer that many checkpoints share: its highest token id, and some special tokens by id."""

    name: str
    max_id: int
    special: Mapping[int, str]


def load_known_model(reference: str) -> ModelFiles | None:
    """The built-in files of a hub id or of the demo model, None for a model that is not built in."""
    data = _load_data()
    model = data["models"].get(reference)
    if model is None:
        return None
    eos = model["eos_token_id"]
    shape = data["shapes"][model["shape"]]
    special = {"bos_token_id": shape["bos_token_id"], "eos_token_id": eos if len(eos) > 1 else eos[0]}
    return ModelFiles(
        reference=reference,
        origin="built in, partly from memory" if model.get("trust") == "memory" else "built in",
        config={**shape, **model.get("config", {}), **special},
        generation_config=special,
        quantization=data["quantizations"][model["quantization"]] if "quantization" in model else {},
        tokenizer_family=_family_of(model["shape"], data),
    )


def is_known_model(reference: str) -> bool:
    """Whether ``reference`` can be planned without a network and without its files."""
    return reference in _load_data()["models"]


def known_references() -> tuple[str, ...]:
    """Every built-in model, as a spec names it."""
    return tuple(_load_data()["models"])


def load_tokenizer_family(name: str) -> TokenizerFamily:
    """A tokenizer family by the name that ``ModelFiles.tokenizer_family`` carries. Raises KeyError for another."""
    record = _load_data()["tokenizers"][name]
    return TokenizerFamily(name, record["max_id"], {int(i): token for i, token in record["special"].items()})


@functools.cache
def _load_data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(DATA_PATH.read_text(encoding="utf-8"))
    return data


def _family_of(shape: str, data: Mapping[str, Any]) -> str:
    """The tokenizer family is the longest name that begins the shape's: llama-3.1-8b is of llama-3."""
    families: list[str] = [name for name in data["tokenizers"] if shape.startswith(name)]
    return max(families, key=len)
