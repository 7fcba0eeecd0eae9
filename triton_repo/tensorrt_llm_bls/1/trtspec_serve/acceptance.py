"""The acceptance rule: which drafted tokens the target keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def accept_tokens(draft_ids: Sequence[int], choose: Callable[[int], int]) -> list[int]:
    """The tokens one verification yields: the accepted drafts, then one token of the target's own.

    ``choose(i)`` is the token the target picks after i accepted drafts, by its own sampling. Each drafted token is kept
    while the target would have picked it too; the first pick that differs takes its place, and if all agree the target
    adds one more (Leviathan et al., arXiv 2211.17192, with acceptance by equality as in TensorRT-LLM's external draft
    tokens without logits). Every token returned is the target's own pick, so its distribution is the target's.
    """
    picked: list[int] = []
    for drafted in draft_ids:
        picked.append(choose(len(picked)))
        if picked[-1] != drafted:
            return picked
    return [*picked, choose(len(picked))]


def count_accepted(draft_ids: Sequence[int], new_ids: Sequence[int]) -> int:
    """How many drafted tokens stand at the front of what the target returned."""
    accepted = 0
    for drafted, kept in zip(draft_ids, new_ids, strict=False):
        if drafted != kept:
            break
        accepted += 1
    return accepted
