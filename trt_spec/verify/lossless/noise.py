"""How much the target alone differs from itself: its answers one by one, and the same in one batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """Of ``prompts`` answers in a batch, how many equal those given alone; ``largest_gap`` in logits of the near-ties.

    ``different`` above 0 means that the engine itself is not reproducible beyond its numeric noise: then a difference
    with speculation proves nothing about speculation.
    """

    prompts: int
    same: int
    near_tie: int
    different: int
    largest_gap: float | None
