"""Who may draft in each mode, as rules over a spec: draft model, or n-gram look-up in prompt and answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_spec.spec.model import Spec

EXTERNAL_DRAFT_MODES = ("draft_target", "ngram")
"""Modes in which, on engine and onnx, the orchestrator drafts and the target's engine verifies."""


def judge_draft_source(spec: Spec) -> Iterator[tuple[str, str]]:
    """Key of the section speculation and message of each broken rule."""
    source, mode = spec.speculation.draft_source, spec.speculation.mode
    if source is not None and spec.backend == "llmapi":
        yield "draft_source", f"found {source}, expected none: with backend llmapi the mode alone says who drafts"
    elif source not in (None, "ngram") and mode == "ngram":
        yield (
            "draft_source",
            f"found {source}, mode ngram has no draft model: remove it, or set mode draft_target with a draft section",
        )
    elif source is not None and mode not in EXTERNAL_DRAFT_MODES:
        yield "draft_source", f"found {source}, expected none: mode {mode} drafts nothing that could be chosen"
    # Backend llmapi takes tokens only, whatever its mode.
    if mode == "ngram" and spec.backend != "llmapi" and spec.speculation.accept != "tokens":
        yield "accept", f"found {spec.speculation.accept}, mode ngram expects tokens: a look-up has no logits"
