"""How many tokens one call asks of the target alone.

Beside others a call waits for the step that runs until it joins them, so short calls lose up to a step each. But a
running call cannot be given up, and until it ends a client who has left, and a change of load, are not seen.
"""

from __future__ import annotations

TRIAL_TOKENS = 4
LOOK_UP_TOKENS = 4
"""Where n-gram lookup pays: it may find something behind every token, but is asked between calls only."""

SHORT_TOKENS = 8
"""For clients who read along, and while it is not yet known what drafts are good for."""

STEADY_TOKENS = 16
"""A request alone joins nobody: longer calls win nothing. Beside others shorter ones lose more than they tell."""

MAX_TOKENS = 64
MAX_CALL_S = 1.0


def plain_chunk_tokens(
    running: int, plain_s: float, *, streams: bool, on_trial: bool, unsure: bool, looks_up: bool
) -> int:
    """Tokens to ask for; ``plain_s`` is what one takes, 0.0 if that is not known."""
    if looks_up and not on_trial:
        return LOOK_UP_TOKENS if running == 1 else SHORT_TOKENS
    if streams:
        return SHORT_TOKENS
    if running == 1:
        return STEADY_TOKENS
    if on_trial or not plain_s:
        return TRIAL_TOKENS
    return SHORT_TOKENS if unsure else max(STEADY_TOKENS, min(MAX_TOKENS, int(MAX_CALL_S / plain_s)))
