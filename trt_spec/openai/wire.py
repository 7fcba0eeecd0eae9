"""A request and its responses in Triton's protobuf messages; their numbers as raw bytes, little-endian."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trt_spec.serve.contract import STREAMING_MODEL

_TYPES = {
    "text_input": "BYTES",
    "stop_words": "BYTES",
    "embedding_bias_words": "BYTES",
    "embedding_bias_weights": "FP32",
    "temperature": "FP32",
    "top_p": "FP32",
    "repetition_penalty": "FP32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "max_tokens": "INT32",
    "min_tokens": "INT32",
    "num_draft_tokens": "INT32",
    "top_k": "INT32",
    "end_id": "INT32",
    "seed": "UINT64",
    "stream": "BOOL",
    "exclude_input_in_output": "BOOL",
    "return_perf_metrics": "BOOL",
    "return_log_probs": "BOOL",
}
"""Triton's data type of each input that is sent: the same in every version's template."""

_FORMATS = {"FP32": "f", "INT32": "i", "UINT64": "Q", "BOOL": "?"}
_FINAL = "triton_final_response"
_EMPTY_FINAL = "triton_enable_empty_final_response"


@dataclass(frozen=True)
class Speculation:
    """Counts of one answer so far, in tokens and rounds; lists are by round."""

    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    fell_back: bool = False
    round_drafted: tuple[int, ...] = ()
    round_accepted: tuple[int, ...] = ()


NOTHING_DRAFTED = Speculation()


@dataclass(frozen=True)
class Piece:
    """One response: the new text, its ids and, if asked for, their log-probabilities."""

    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    outputs: Mapping[str, bytes]
    is_final: bool

    def speculation(self) -> Speculation:
        """What was drafted so far; this is read from the last response alone."""
        numbers = {name: _ints(self.outputs.get(name, b"")) for name in _COUNTS}
        drafted, accepted, rounds = (sum(numbers[name][:1]) for name in _COUNTS[:3])
        fell_back = any(self.outputs.get("draft_fallback", b""))
        return Speculation(drafted, accepted, rounds, fell_back, numbers[_COUNTS[3]], numbers[_COUNTS[4]])


_COUNTS = (
    "total_draft_tokens",
    "total_accepted_draft_tokens",
    "draft_rounds",
    "round_draft_tokens",
    "round_accepted_draft_tokens",
)


def build_request(protocol: Any, request_id: str, values: Mapping[str, Any]) -> Any:
    """A ModelInferRequest to the streaming orchestrator; ``protocol`` is the module service_pb2."""
    request = protocol.ModelInferRequest(model_name=STREAMING_MODEL, id=request_id)
    request.parameters[_EMPTY_FINAL].bool_param = True
    for name, value in values.items():
        row = value if isinstance(value, list | tuple) else (value,)
        dtype = _TYPES[name]
        request.inputs.add(name=name, datatype=dtype, shape=[1, len(row)])
        request.raw_input_contents.append(_pack(dtype, row))
    return request


def read_piece(response: Any) -> Piece:
    """What one ModelInferResponse says."""
    outputs = {output.name: raw for output, raw in zip(response.outputs, response.raw_output_contents, strict=False)}
    text = outputs.get("text_output", b"")[4:].decode("utf-8", "replace")
    log_probs = outputs.get("output_log_probs", b"")
    return Piece(
        text=text,
        ids=_ints(outputs.get("output_ids", b"")),
        log_probs=struct.unpack(f"<{len(log_probs) // 4}f", log_probs) if log_probs else (),
        outputs=outputs,
        is_final=response.parameters[_FINAL].bool_param if _FINAL in response.parameters else False,
    )


def _ints(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(raw) // 4}i", raw) if raw else ()


def _pack(dtype: str, row: Sequence[Any]) -> bytes:
    if dtype == "BYTES":
        encoded = [text.encode("utf-8") for text in row]
        return b"".join(struct.pack("<I", len(text)) + text for text in encoded)
    return struct.pack(f"<{len(row)}{_FORMATS[dtype]}", *row)
