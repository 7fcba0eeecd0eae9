"""Whether draft and target mean the same by a token id; if not, speculation would accept nonsense or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError


def load_vocabulary(folder: Path) -> dict[int, str]:
    """Token by id, added and special tokens included, from a model folder's ``tokenizer.json``."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SpecError(
            f"{folder} has no tokenizer.json.",
            remedy="Save the model's fast tokenizer there (transformers: AutoTokenizer ... save_pretrained).",
        )
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        model = content["model"]["vocab"]
        # Unigram vocabularies are lists of [token, score] in id order.
        pairs = (
            enumerate(token for token, _ in model) if isinstance(model, list) else ((i, t) for t, i in model.items())
        )
        vocabulary = {int(token_id): str(token) for token_id, token in pairs}
        vocabulary.update({int(added["id"]): str(added["content"]) for added in content.get("added_tokens", [])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(
            f"{path} cannot be read as a tokenizer ({error!r}).", remedy="Download the file again."
        ) from None
    return vocabulary


def check_same_vocabulary(target: dict[int, str], draft: dict[int, str]) -> None:
    """Raises SpecError that names the first id on which the two vocabularies differ."""
    for token_id in sorted(target.keys() | draft.keys()):
        in_target, in_draft = target.get(token_id), draft.get(token_id)
        if in_target != in_draft:
            raise SpecError(
                f"Draft and target have different vocabularies: token {token_id} is {_shown(in_target)} in the target "
                f"and {_shown(in_draft)} in the draft.",
                remedy="Choose a draft model of the target's own family, with the same tokenizer.",
            )


def _shown(token: str | None) -> str:
    return "missing" if token is None else repr(token)
