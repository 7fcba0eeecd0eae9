"""One replay of the conformance table against a running server, and its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trt_spec.errors import VerifyFailed
from trt_spec.plan.engine_record import ONNX_VERSION_PREFIX
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.util.files import write_text_atomic
from trt_spec.verify.conditions import read_versions
from trt_spec.verify.conformance.endpoint import Endpoint, KnownLimits, resolve_limits
from trt_spec.verify.conformance.engine import CLEAR_GAP, ProbedEngine
from trt_spec.verify.conformance.observation import CallFailed, NotApplicable, Observation
from trt_spec.verify.conformance.rows import ROWS, Row
from trt_spec.verify.conformance.triton_endpoint import TritonEndpoint

RECORD_FILE = "conformance.json"
DEFAULT_DEADLINE_S = 120.0

_TENSORRT_LLM = "TensorRT-LLM engine"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Proof:
    """What one row came to on one engine model."""

    row: Row
    model: str
    observation: Observation


@dataclass(frozen=True)
class Record:
    """A whole replay. ``engines`` is what is known of each engine model: its make, limits, and what told them."""

    date: str
    url: str
    server: str
    engines: Mapping[str, Mapping[str, Any]]
    deployment: Mapping[str, str]
    versions: Mapping[str, str]
    requests: int
    proofs: tuple[Proof, ...]

    def of(self, verdict: str) -> tuple[Proof, ...]:
        return tuple(proof for proof in self.proofs if proof.observation.verdict == verdict)


@dataclass(frozen=True)
class ProveOptions:
    """``deployment`` is what the user's spec says of it: name, backend, TensorRT-LLM version."""

    url: str
    deadline_s: float = DEFAULT_DEADLINE_S
    report_folder: Path | None = None
    deployment: Mapping[str, str] = field(default_factory=dict)


def run_prove(options: ProveOptions, progress: Progress = lambda _: None) -> Record:
    """Probes every row, one request at a time, and writes the record if a folder is given.

    Returns the record whatever it says; ``check_record`` turns a row that differs into VerifyFailed. Raises
    EnvironmentMissing, SpecError and StepFailed as TritonEndpoint does.
    """
    with TritonEndpoint(options.url, deadline_s=options.deadline_s) as endpoint:
        server = endpoint.check_engine()
        progress(f"connected to {server} on {endpoint.url}")
        limits = _resolve_limits(endpoint)
        requests, proofs = prove_rows(endpoint, limits, progress)
    record = Record(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        url=endpoint.url,
        server=server,
        engines={model: {"stands_for": _stands_for(known), **asdict(known)} for model, known in limits.items()},
        deployment=dict(options.deployment),
        versions=read_versions(),
        requests=requests,
        proofs=proofs,
    )
    if options.report_folder is not None:
        options.report_folder.mkdir(parents=True, exist_ok=True)
        write_text_atomic(options.report_folder / RECORD_FILE, render_record(record))
        progress(f"record written to {options.report_folder / RECORD_FILE}")
    return record


def prove_rows(
    endpoint: Endpoint, limits: Mapping[str, KnownLimits], progress: Progress = lambda _: None
) -> tuple[int, tuple[Proof, ...]]:
    """(requests made, proofs) of every model in ``limits``: of each row that is probed there."""
    proofs, requests = [], 0
    for model, known in limits.items():
        engine = ProbedEngine(endpoint, known, model)
        for row in ROWS:
            if row.probe is not None and (row.on_draft or model == TARGET_MODEL):
                proofs.append(Proof(row, model, observe(row, engine)))
                progress(f"{model} {row.id}: {proofs[-1].observation.verdict}")
        requests += engine.requests
    return requests, tuple(proofs)


def _resolve_limits(endpoint: TritonEndpoint) -> dict[str, KnownLimits]:
    """Limits by model name: the target's, and the draft's where one is served; drafts are never sent to it."""
    orchestrator = endpoint.find(UNARY_MODEL)
    limits = {TARGET_MODEL: resolve_limits(endpoint.interface(TARGET_MODEL), orchestrator)}
    if (draft := endpoint.find(DRAFT_MODEL)) is not None:
        limits[DRAFT_MODEL] = replace(resolve_limits(draft, None), max_draft_len=0)
    return limits


def observe(row: Row, engine: ProbedEngine) -> Observation:
    """What the row's probe sees; a request that the rules grant and the endpoint fails is a difference."""
    assert row.probe is not None
    try:
        return _doubt(row.probe(engine), engine)
    except NotApplicable as reason:
        return Observation("not applicable", row.probed, str(reason))
    except CallFailed as failure:
        return Observation("differs", row.probed, str(failure))


def _doubt(observation: Observation, engine: ProbedEngine) -> Observation:
    """A greedy answer that was nearly another one may differ by rounding alone."""
    gap = engine.greedy_gap
    if observation.verdict != "differs" or gap is None or gap > CLEAR_GAP:
        return observation
    return replace(observation, seen=f"{observation.seen} (best two logits only {gap:.3g} apart: perhaps rounding)")


def check_record(record: Record) -> None:
    """Raises VerifyFailed if a row differs."""
    if differing := record.of("differs"):
        raise VerifyFailed(
            f"{len(differing)} of {len(record.proofs)} rules of the conformance table do not hold on {record.url}: "
            f"{', '.join(f'{proof.row.id} ({proof.model})' for proof in differing)}.",
            remedy="docs/reference/conformance.md says what follows from each; report it with the record.",
        )


def render_record(record: Record) -> str:
    """The record as one JSON document; ``verified`` lists what is now known of TensorRT-LLM, and on what."""
    document = asdict(record)
    document["proofs"] = [
        {
            "model": proof.model,
            **{name: getattr(proof.row, name) for name in ("id", "rule", "source", "trust")},
            **asdict(proof.observation),
        }
        for proof in record.proofs
    ]
    # Another make's engine may keep the rules or not: that verifies none of TensorRT-LLM's.
    held = [proof for proof in record.of("held") if record.engines[proof.model]["stands_for"] == _TENSORRT_LLM]
    document["verified"] = {
        "on": describe_place(record),
        "rows": {model: [proof.row.id for proof in held if proof.model == model] for model in record.engines},
    }
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def describe_place(record: Record) -> str:
    """What the proofs were made on, in words."""
    engine = record.engines[TARGET_MODEL]
    version = engine["version"] or record.deployment.get("tensorrt_llm") or "version unknown"
    return f"{engine['stands_for']} {version}, {record.server}, {record.date}"


def _stands_for(limits: KnownLimits) -> str:
    """Only a real engine turns a rule that was read into one that was seen."""
    if limits.version.startswith(ONNX_VERSION_PREFIX):
        return "trtspec's local engine"
    return _TENSORRT_LLM if limits.version else "engine of unknown make"
