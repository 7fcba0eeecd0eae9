"""Reading the tensors of a Triton request; every fault becomes a message for the client."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import ADVICE, HARMLESS, MIN_TOKENS_NAMES, NEUTRAL, SEED_NAMES
from .debug_log import DEBUG_PARAMETER
from .logit_rules import LogitRules
from .sampling import Sampling


class BadRequest(ValueError):
    """What is wrong with a request; the message goes to the client."""


class TensorReader:
    """The inputs of one request of one sequence: arrays without the batch dimension, scalars as Python values."""

    def __init__(self, request: Any) -> None:
        self._tensors = {tensor.name(): tensor for tensor in request.inputs()}

    def array(self, name: str) -> NDArray[Any] | None:
        """The values of an input without its batch dimension, None if it is absent."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        values: NDArray[Any] = tensor.as_numpy()
        if values.ndim == 0 or values.shape[0] != 1:
            raise BadRequest(
                f"{name} has shape {list(values.shape)}, expected a batch of one: send one prompt a request."
            )
        return values.reshape(values.shape[1:])

    def scalar(self, name: str) -> Any:
        """The single value of an input, None if it is absent or empty."""
        values = self.array(name)
        if values is None or values.size == 0:
            return None
        if values.size > 1:
            raise BadRequest(f"{name} has {values.size} values, expected one.")
        return values.reshape(-1)[0].item() if values.dtype != np.object_ else values.reshape(-1)[0]

    def ids(self, name: str) -> list[int]:
        """A one-dimensional input as a list, empty if it is absent."""
        values = self.array(name)
        return [] if values is None else values.reshape(-1).tolist()

    def flag(self, name: str) -> bool:
        return bool(self.scalar(name))

    def text(self, name: str) -> str | None:
        """A string input; BadRequest if its bytes are not UTF-8."""
        value = self.scalar(name)
        return None if value is None else decode_text(value, name)

    def sampling(
        self,
        *,
        top_k: str,
        top_p: str,
        bad_words: tuple[tuple[int, ...], ...] = (),
        embedding_bias: NDArray[np.float32] | None = None,
    ) -> Sampling:
        """The sampling parameters; ``top_k`` and ``top_p`` are the names of their tensors.

        ``top_p`` with ``_decay`` and ``_min`` behind it names those of a top-p that changes; 0 leaves them unset.
        """
        temperature = self.scalar("temperature")
        try:
            rules = LogitRules(
                repetition_penalty=self.scalar("repetition_penalty") or 1.0,
                presence_penalty=self.scalar("presence_penalty") or 0.0,
                frequency_penalty=self.scalar("frequency_penalty") or 0.0,
                min_tokens=self._renamed(MIN_TOKENS_NAMES) or 0,
                bad_words=bad_words,
                embedding_bias=embedding_bias,
            )
            return Sampling(
                temperature=1.0 if temperature is None else temperature,
                top_k=self.scalar(top_k) or 0,
                top_p=self.scalar(top_p) or 0.0,
                seed=self.seed() or 0,
                rules=rules,
                top_p_decay=self.scalar(f"{top_p}_decay") or Sampling.top_p_decay,
                top_p_min=self.scalar(f"{top_p}_min") or Sampling.top_p_min,
            )
        except BadRequest:
            raise
        except ValueError as error:
            raise BadRequest(f"{error}.") from None

    def seed(self) -> int | None:
        return self._renamed(SEED_NAMES)

    def _renamed(self, names: tuple[str, ...]) -> int | None:
        """An input that has several names, of which a client may send any."""
        values = [value for value in map(self.scalar, names) if value is not None]
        if len(set(values)) > 1:
            raise BadRequest(f"{' and '.join(names)} are two names of one input and differ: {values}.")
        return values[0] if values else None

    def check_supported(self, read: frozenset[str]) -> None:
        """Raises BadRequest for an input outside ``read`` that asks for something: refused, never dropped."""
        for name in self._tensors.keys() - read - HARMLESS:
            if name in NEUTRAL:
                value = self.scalar(name)
                if value is not None and value not in NEUTRAL[name]:
                    raise BadRequest(
                        f"{name} {value!r} is not supported here; leave it out or send {NEUTRAL[name][-1]!r}. "
                        f"{ADVICE.get(name, '')}".rstrip()
                    )
            elif self._asks(name):
                raise BadRequest(f"{name} is not supported here; leave it out. {ADVICE.get(name, '')}".rstrip())

    def _asks(self, name: str) -> bool:
        """Clients of NVIDIA's templates send empty strings for what they do not use."""
        values = self.array(name)
        if values is None or values.size == 0:
            return False
        return values.dtype != np.object_ or any(len(value) > 0 for value in values.reshape(-1))


def decode_text(value: bytes | str, name: str) -> str:
    """Text of a BYTES element; BadRequest if it is not UTF-8."""
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{name} is not valid UTF-8 at byte {error.start}.") from None


KNOWN_PARAMETERS = frozenset(
    {
        "binary_data_output",
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "triton_enable_empty_final_response",
        DEBUG_PARAMETER,
    }
)
"""Request parameters of Triton's own protocol, and ours; any other is a misspelt input of a generate call."""


def check_parameters(parameters: str, read: frozenset[str]) -> None:
    """Keys of a generate call that are no inputs arrive here: refused, for dropping them would change the answer.

    ``parameters`` is the JSON text of Triton's request parameters, ``read`` the inputs to name in the message.
    """
    unknown = sorted(set(json.loads(parameters or "{}")) - KNOWN_PARAMETERS)
    if unknown:
        raise BadRequest(f"unknown input {', '.join(unknown)}; the inputs are {', '.join(sorted(read))}.")


def read_parameters(args: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The model configuration that Triton gives ``initialize``, and its parameters by name."""
    config = json.loads(args["model_config"])
    return config, {name: value["string_value"] for name, value in config["parameters"].items()}
