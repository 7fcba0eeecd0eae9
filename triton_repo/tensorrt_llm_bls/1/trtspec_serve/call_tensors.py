"""The tensors of one request's engine calls. Making one costs about 30 us behind an engine that has emptied the caches,
so those whose values last are kept from call to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine_calls import EngineCall
from .engine_inputs import EngineDialect, length_inputs, text_inputs

Inputs = Mapping[str, NDArray[Any]]


class CallTensors:
    """For a request that has one call at a time with each engine.

    Two calls at a time must not share a tensor that was never sent: Triton fills it then. The only one that both
    engines get is the text so far, which the target is sent when the draft has answered.
    """

    def __init__(self, triton: Any, dialect: EngineDialect) -> None:
        self._triton = triton
        self._dialect = dialect
        self._kept: dict[tuple[str, str], tuple[Any, list[Any]]] = {}
        self._text: tuple[NDArray[np.int32], bool, list[Any]] | None = None

    def of(
        self, engine: str, call: EngineCall, *, vocab_size: int, crowded: bool, switch: str | None = None
    ) -> list[Any]:
        """All inputs of ``call`` to ``engine``, whose vocabulary has ``vocab_size`` ids.

        ``crowded`` tells that other requests use the engine's cache too; ``switch`` is one more input, which is true.
        """
        settings = self._dialect.settings(call, crowded=crowded, switch=switch)
        return [
            *self._keep(engine, "settings", settings, partial(self._dialect.lasting_inputs, settings, vocab_size)),
            *self._keep(engine, "length", call.max_new_tokens, partial(length_inputs, call.max_new_tokens)),
            *self._text_tensors(call.ids, settings.retains),
            *self._make(self._dialect.round_inputs(call)),
        ]

    def forget_text(self) -> None:
        """For the next call to be sent a text of its own, because the last one may still be under way."""
        self._text = None

    def _keep(self, engine: str, what: str, value: Any, inputs: Callable[[], Inputs]) -> list[Any]:
        """The tensors of ``inputs``, made anew only where ``value``, which decides them, is another."""
        kept = self._kept.get((engine, what))
        if kept is None or kept[0] != value:
            kept = self._kept[engine, what] = value, self._make(inputs())
        return kept[1]

    def _text_tensors(self, ids: NDArray[np.int32], retains: bool) -> list[Any]:
        kept = self._text
        if kept is None or kept[0] is not ids or kept[1] != retains:
            kept = self._text = ids, retains, self._make(text_inputs(ids, retains=retains))
        return kept[2]

    def _make(self, values: Inputs) -> list[Any]:
        return [self._triton.Tensor(name, value) for name, value in values.items()]
