"""The engine models of a Triton server as a probe sees them: token ids in, tensors out, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from trt_spec.verify.conformance.observation import CallFailed
from trt_spec.verify.tensors import ModelInterface


@dataclass(frozen=True)
class Answer:
    """``outputs`` by tensor name, batch dimension included; ``refusal`` is the server's message if it refused."""

    outputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    refusal: str | None = None

    @property
    def ids(self) -> list[int]:
        """The ids that count: the first sequence of output_ids [1, beams, n], up to sequence_length [1, beams].

        Raises CallFailed for a refusal, and for an answer without these tensors.
        """
        if self.refusal is not None:
            raise CallFailed(f"refused: {self.refusal}")
        if missing := {"output_ids", "sequence_length"} - self.outputs.keys():
            raise CallFailed(f"an answer without {', '.join(sorted(missing))}")
        ids = self.outputs["output_ids"].reshape(-1)
        length = int(self.outputs["sequence_length"].reshape(-1)[0])
        return [int(token) for token in ids[:length]]


@dataclass(frozen=True)
class KnownLimits:
    """What the engine was built for, in tokens; None where the endpoint does not tell. ``source`` says who told.

    ``version`` is that of the engine, empty where it is not known.
    """

    max_draft_len: int | None = None
    max_seq_len: int | None = None
    max_num_tokens: int | None = None
    max_kv_tokens: int | None = None
    source: str = "unknown"
    version: str = ""


class Endpoint(Protocol):
    """A server with NVIDIA's engine tensors. ``call`` raises StepFailed when the server itself does not answer."""

    def interface(self, model: str) -> ModelInterface: ...

    def call(self, model: str, values: Mapping[str, Any]) -> Answer: ...


def resolve_limits(engine: ModelInterface, orchestrator: ModelInterface | None) -> KnownLimits:
    """Limits from the engine folder, where this machine sees it, else from the orchestrator's parameters.

    Reads config.json of the folder that ``gpt_model_path`` names. The parameter max_num_tokens is the local engine's.
    """
    kv_tokens, num_tokens = (engine.int_parameter(name) for name in ("max_tokens_in_paged_kv_cache", "max_num_tokens"))
    config = _read_config(engine.parameters.get("gpt_model_path", ""))
    if config is not None:
        build = config["build_config"]
        return KnownLimits(
            max_draft_len=_count(build, "max_draft_len"),
            max_seq_len=_count(build, "max_seq_len"),
            max_num_tokens=num_tokens or _count(build, "max_num_tokens"),
            max_kv_tokens=kv_tokens,
            source="the engine's config.json",
            version=str(config.get("version", "")),
        )
    if orchestrator is None:
        return KnownLimits(max_num_tokens=num_tokens, max_kv_tokens=kv_tokens)
    return KnownLimits(
        max_draft_len=orchestrator.int_parameter("max_draft_len"),
        max_seq_len=orchestrator.int_parameter("max_seq_len"),
        max_num_tokens=num_tokens,
        max_kv_tokens=kv_tokens,
        source=f"the parameters of {orchestrator.name}",
    )


def _read_config(folder: str) -> Mapping[str, Any] | None:
    """None where the folder is another machine's, or holds no engine."""
    path = Path(folder, "config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8")) if folder else None
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) and isinstance(config.get("build_config"), dict) else None


def _count(build: Mapping[str, Any], name: str) -> int | None:
    value = build.get(name)
    return value if isinstance(value, int) else None
