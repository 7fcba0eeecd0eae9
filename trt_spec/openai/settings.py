"""How the endpoint is set up, and what it allows a client."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_PORT = 9000


@dataclass(frozen=True)
class Settings:
    """``model_names`` are what requests may call the model, the first of them is what answers call it.

    ``api_keys`` empty: everybody may ask. ``allowed_origins`` empty: browsers of other sites may not.
    """

    triton: str
    model_names: tuple[str, ...]
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 4 << 20
    max_messages: int = 4096
    max_choices: int = 16
    body_timeout_s: float = 30.0  # for a body to arrive
    send_timeout_s: float = 60.0  # for a client to take what was sent
    request_timeout_s: float = 600.0  # for an answer, the wait in the queue included
