"""A request to the orchestrator as values by input name, checked before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.serve.contract import STREAMING_MODEL
from trt_spec.verify.tensors import ModelInterface

# Engines fall back to one shared seed without this; greedy output does not depend on it.
DEFAULT_SEED = 1


@dataclass(frozen=True)
class Controls:
    """What a request asks for beside its text; greedy unless it names a temperature, ``top_k`` or ``top_p``.

    ``stop_words`` is one text or several; empty ones ask for nothing. ``end_id`` None is the model's own, which the
    orchestrator reads from its generation_config.json. Raises SpecError for what no server accepts.
    """

    stop_words: str | Sequence[str] = ()
    end_id: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise _refused(f"top_p is {self.top_p}", "more than 0, at most 1")
        if self.temperature is not None and not 0.0 <= self.temperature < float("inf"):
            raise _refused(f"temperature is {self.temperature}", "0 or more")
        words = self.stop_words
        if not isinstance(words, str) and not all(isinstance(word, str) for word in words):
            raise _refused(f"stop_words is {words!r}", "a text or a list of texts")

    def words(self) -> list[str]:
        given = [self.stop_words] if isinstance(self.stop_words, str) else self.stop_words
        return [word for word in given if word]

    def sampling(self) -> dict[str, Any]:
        """The inputs that choose tokens. A temperature alone would be ignored by an engine: top_p goes with it."""
        if not self.temperature and self.top_k is None and self.top_p is None:
            return {"top_k": 1}
        top_p = 1.0 if self.top_k is None and self.top_p is None else self.top_p
        given = {"temperature": self.temperature, "top_k": self.top_k, "top_p": top_p}
        return {name: value for name, value in given.items() if value is not None}


GREEDY = Controls()


def text_values(
    interface: ModelInterface,
    text: str | bytes,
    max_tokens: int,
    num_draft_tokens: int | None,
    *,
    stream: bool,
    controls: Controls = GREEDY,
) -> dict[str, Any]:
    """Values by input name; the names that differ between versions are the ones that ``interface`` declares.

    Raises SpecError for a stream from a model that gives one response.
    """
    if stream and not interface.decoupled:
        raise SpecError(
            f"{interface.name} gives one response a request and cannot stream.",
            remedy=f"Stream from {STREAMING_MODEL}, or ask without a stream.",
        )
    optional = {
        "num_draft_tokens": num_draft_tokens,
        "stop_words": controls.words() or None,
        "end_id": controls.end_id,
        interface.seed_name: controls.seed,
        interface.min_tokens_name: controls.min_tokens,
    }
    return {
        "text_input": text,
        "max_tokens": max_tokens,
        "stream": stream,
        "exclude_input_in_output": True,
        "return_perf_metrics": True,
        **controls.sampling(),
        **{name: value for name, value in optional.items() if name and value is not None},
    }


def _refused(found: str, expected: str) -> SpecError:
    return SpecError(f"{found}, expected {expected}.", remedy="Correct the request.")
