"""What planning knows of a tokenizer: its whole content, or only the family that a built-in model belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trt_spec.plan.known_models import TokenizerFamily, load_tokenizer_family
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.vocabulary import resolve_vocabulary


@dataclass(frozen=True)
class Tokenizer:
    """Token by id, merges as tokenizer.json has them, ids marked special; ``family`` instead of all that if built in.

    ``vocabulary`` is None where only the family is known. ``max_id`` is the highest token id in use.
    """

    vocabulary: Mapping[int, str] | None
    merges: list[Any]
    special_ids: frozenset[int]
    family: TokenizerFamily | None
    max_id: int


def resolve_tokenizer(files: ModelFiles) -> Tokenizer | None:
    """The tokenizer of a model, None where its files hold none. Raises SpecError for a file that is no tokenizer."""
    if files.tokenizer:
        vocabulary = resolve_vocabulary(files.tokenizer, source=f"tokenizer.json of {files.reference}")
        if vocabulary:
            special = (int(a["id"]) for a in files.tokenizer.get("added_tokens", []) if a.get("special"))
            merges = files.tokenizer["model"].get("merges") or []
            return Tokenizer(vocabulary, merges, frozenset(special), None, max(vocabulary))
    if files.tokenizer_family is not None:
        family = load_tokenizer_family(files.tokenizer_family)
        return Tokenizer(None, [], frozenset(), family, family.max_id)
    return None


def first_merge_difference(target: list[Any], draft: list[Any]) -> int | None:
    """The first place where two lists of merges differ, None if none does.

    A merge is written "a b" in older files and ["a", "b"] in newer ones; both mean the same.
    """
    if target == draft:
        return None
    for place, (ours, theirs) in enumerate(zip(target, draft, strict=False)):
        if _merge(ours) != _merge(theirs):
            return place
    return min(len(target), len(draft)) if len(target) != len(draft) else None


def _merge(merge: Any) -> tuple[str, ...]:
    return tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge)
