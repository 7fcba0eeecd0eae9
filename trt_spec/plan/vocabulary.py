"""Whether draft and target mean the same by a token id; if not, speculation would accept nonsense or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError


@dataclass(frozen=True)
class VocabularyDifference:
    """The first id on which two vocabularies differ; None where a side has no such token."""

    token_id: int
    in_target: str | None
    in_draft: str | None

    def __str__(self) -> str:
        return (
            f"Draft and target have different vocabularies: token {self.token_id} is {_shown(self.in_target)} in the "
            f"target and {_shown(self.in_draft)} in the draft."
        )


SAME_FAMILY_REMEDY = "Choose a draft model of the target's own family, with the same tokenizer."


def load_vocabulary(folder: Path) -> dict[int, str]:
    """Token by id, added and special tokens included, from a model folder's ``tokenizer.json``."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SpecError(
            f"{folder} has no tokenizer.json.",
            remedy="Save the model's fast tokenizer there (transformers: AutoTokenizer ... save_pretrained).",
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(path), error) from None
    return resolve_vocabulary(content, source=str(path))


def resolve_vocabulary(tokenizer: Mapping[str, Any], *, source: str) -> dict[int, str]:
    """Token by id, added and special tokens included, of a parsed ``tokenizer.json``.

    ``source`` names the file in errors. Raises SpecError for content that is no tokenizer.
    """
    try:
        model = tokenizer["model"]["vocab"]
        # Unigram vocabularies are lists of [token, score] in id order.
        pairs = (
            enumerate(token for token, _ in model) if isinstance(model, list) else ((i, t) for t, i in model.items())
        )
        vocabulary = {int(token_id): str(token) for token_id, token in pairs}
        vocabulary.update({int(added["id"]): str(added["content"]) for added in tokenizer.get("added_tokens", [])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(source, error) from None
    return vocabulary


def compare_vocabularies(target: Mapping[int, str], draft: Mapping[int, str]) -> VocabularyDifference | None:
    """The first id, counted upwards, on which the two differ; None if they mean the same."""
    if target == draft:
        return None
    token_id = min(i for i in target.keys() | draft.keys() if target.get(i) != draft.get(i))
    return VocabularyDifference(token_id, target.get(token_id), draft.get(token_id))


def check_vocabulary_fits(vocabulary: dict[int, str], vocab_size: int, folder: Path) -> None:
    """Raises SpecError for a token whose id the model's embedding does not have."""
    largest = max(vocabulary, default=0)
    if largest >= vocab_size:
        raise SpecError(
            f"{folder}: token {vocabulary[largest]!r} of the tokenizer has id {largest}, vocab_size is {vocab_size}.",
            remedy="tokenizer.json and config.json belong to different models; download both again.",
        )


def check_same_vocabulary(target: Mapping[int, str], draft: Mapping[int, str]) -> None:
    """Raises SpecError that names the first id on which the two vocabularies differ."""
    if difference := compare_vocabularies(target, draft):
        raise SpecError(str(difference), remedy=SAME_FAMILY_REMEDY)


def _shown(token: str | None) -> str:
    return "missing" if token is None else repr(token)


def _unreadable(source: str, error: Exception) -> SpecError:
    return SpecError(f"{source} cannot be read as a tokenizer ({error!r}).", remedy="Download the file again.")
