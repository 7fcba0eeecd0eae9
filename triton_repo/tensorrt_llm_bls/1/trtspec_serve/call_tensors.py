"""The tensors of one request's engine calls. Making one costs about 30 us behind an engine that has emptied the caches,
so those whose values last are kept from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine_calls import EngineCall
from .engine_inputs import TRUE, EngineDialect, lasting_settings


class CallTensors:
    """For a request that has one call at a time with each engine.

    Two calls at a time must not share a tensor that was never sent: Triton fills it then. The only one that both
    engines get is the text so far, which the target is sent when the draft has answered.
    """

    def __init__(self, triton: Any, dialect: EngineDialect) -> None:
        self._triton = triton
        self._dialect = dialect
        self._lasting: dict[str, tuple[tuple[Any, ...], list[Any]]] = {}
        self._text: tuple[NDArray[np.int32], bool, list[Any]] | None = None

    def of(
        self, engine: str, call: EngineCall, *, vocab_size: int, crowded: bool, switch: str | None = None
    ) -> list[Any]:
        """All inputs of ``call`` to ``engine``; ``switch`` is one more, which is true."""
        return [
            *self._lasting_tensors(engine, call, vocab_size, crowded, switch),
            *self._text_tensors(call.ids, crowded),
            *self._make(self._dialect.round_inputs(call)),
        ]

    def forget_text(self) -> None:
        """For the next call to be sent a text of its own, because the last one may still be under way."""
        self._text = None

    def _lasting_tensors(
        self, engine: str, call: EngineCall, vocab_size: int, crowded: bool, switch: str | None
    ) -> list[Any]:
        settings = *lasting_settings(call), crowded, switch
        kept = self._lasting.get(engine)
        if kept is None or kept[0] != settings:
            values = self._dialect.lasting_inputs(call, vocab_size, crowded=crowded)
            if switch:
                values[switch] = TRUE
            kept = self._lasting[engine] = settings, self._make(values)
        return kept[1]

    def _text_tensors(self, ids: NDArray[np.int32], crowded: bool) -> list[Any]:
        kept = self._text
        if kept is None or kept[0] is not ids or kept[1] != crowded:
            kept = self._text = ids, crowded, self._make(self._dialect.text_inputs(ids, crowded=crowded))
        return kept[2]

    def _make(self, values: Mapping[str, NDArray[Any]]) -> list[Any]:
        return [self._triton.Tensor(name, value) for name, value in values.items()]
