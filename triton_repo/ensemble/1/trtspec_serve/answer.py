"""The text of an answer while its tokens arrive: deltas, stop texts, and the ids they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from .tokens import BROKEN, TextStream, TextTokenizer


class Answer:
    """Collects the ids of one answer; ends early, and right behind it, when one of ``stop_texts`` appears.

    Stop words are part of the answer, as in TensorRT-LLM's own output. They are also looked for in the text, because a
    word may be spelled by other tokens than the ones it is encoded to alone.

    Without stop texts nobody but a client who ``streams`` needs the text before the end; else it is decoded there.
    """

    def __init__(self, tokenizer: TextTokenizer, stop_texts: Sequence[str], *, streams: bool = True) -> None:
        self._stream = TextStream(tokenizer)
        self._stop_texts = tuple(stop_texts)
        self._decodes = streams or bool(stop_texts)
        self.ids: list[int] = []
        self.text = ""
        self.stopped = False

    def add(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` add; ids behind a stop text are dropped."""
        if not self._decodes:
            self.ids.extend(ids)
            return ""
        before = len(self.text)
        for token in ids:
            if self.stopped:
                break
            self.ids.append(token)
            self._append(self._stream.push([token]))
        return self.text[before:]

    def finish(self, *, cut: bool) -> str:
        """The text that was held back because a character was unfinished.

        ``cut`` tells that the answer ended at its length limit: then the beginning of a character that the next token
        would have completed is dropped.
        """
        before = len(self.text)
        if not self._decodes:
            self._append(self._stream.push(self.ids))
        if not self.stopped:
            held = self._stream.finish()
            self._append(held.rstrip(BROKEN) if cut else held)
        return self.text[before:]

    def _append(self, piece: str) -> None:
        searched_from = len(self.text)
        self.text += piece
        ends = [
            found + len(stop)
            for stop in self._stop_texts
            if (found := self.text.find(stop, max(0, searched_from - len(stop) + 1))) >= 0
        ]
        if piece and ends:
            self.text = self.text[: min(ends)]
            self.stopped = True
