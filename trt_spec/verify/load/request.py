"""One request of a load, and what an endpoint streams back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class LoadRequest:
    """What to send. ``text`` is the prompt as the endpoint gets it; bytes go over gRPC as they are.

    ``min_tokens`` equal to ``max_tokens`` makes the answer exactly that long. ``num_draft_tokens`` None leaves the
    choice to the endpoint. Decoding is greedy unless ``temperature`` is given.
    """

    id: str
    kind: str
    text: str | bytes
    max_tokens: int
    min_tokens: int | None = None
    num_draft_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    seed: int = 1


class Message(NamedTuple):
    """One message of a stream. A field that the endpoint does not tell is None."""

    text: str = ""
    output_ids: tuple[int, ...] | None = None
    total_tokens: int | None = None  # tokens of the whole answer so far
    rounds_drafted: tuple[int, ...] | None = None  # of the whole answer so far
    rounds_accepted: tuple[int, ...] | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    text_grows: bool = False  # ``text`` is the whole answer so far, not what is new


class RequestFailed(Exception):
    """The endpoint refused or broke off a request; the text is its own, on one line."""


class Endpoint(Protocol):
    """A place that answers prompts with streams of messages."""

    @property
    def name(self) -> str:
        """Address and model, for reports and messages."""
        ...

    async def open(self) -> None:
        """Connects and learns what the model takes.

        Raises EnvironmentMissing (nobody answers, a package lacks) or SpecError (wrong model, it does not stream).
        """
        ...

    async def close(self) -> None: ...

    def stream(self, request: LoadRequest) -> AsyncGenerator[Message, None]:
        """The messages of one answer; raises RequestFailed. Closing the iterator cancels the request."""
        ...
