"""Loads made of chosen figures, and a report of them that looks like one of a small server."""

from __future__ import annotations

import pytest

from trt_spec.plan.measured_speed import MeasuredSteps
from trt_spec.verify.bench.assemble import assemble_points, find_break_even, recommend_lengths
from trt_spec.verify.bench.results import SCHEMA_VERSION, BenchConditions, BenchReport
from trt_spec.verify.bench.settings import Setting, Sweeps, list_settings
from trt_spec.verify.bench.verdict import collect_notes, judge_bench
from trt_spec.verify.results import LoadResult, MachineLoad, MetricsDelta, RequestResult

TOKENS = 48


def make_load(token_s: float, drafted: int = 0, accepted: int = 0, count: int = 6, failed: int = 0) -> LoadResult:
    """``count`` answers of 48 tokens at ``token_s`` each, rounds of ``drafted`` tokens of which ``accepted`` stay."""
    rows = []
    for index in range(count):
        step = token_s * (1 + 0.01 * (index % 3))
        rounds = TOKENS // (accepted + 1) if drafted else 0
        is_lost = index < failed
        rows.append(
            RequestResult(
                id=f"p{index}",
                kind="chat",
                outcome="failed" if is_lost else "answered",
                error="refused" if is_lost else "",
                sent_s=float(index),
                delay_s=0.0,
                latency_s=0.05 + step * (TOKENS - 1),
                message_s=() if is_lost else tuple(0.05 + step * n for n in range(TOKENS)),
                message_tokens=() if is_lost else (1,) * TOKENS,
                tokens=0 if is_lost else TOKENS,
                token_source="ids",
                text="",
                rounds_drafted=(drafted,) * rounds,
                rounds_accepted=(accepted,) * rounds,
                drafted_tokens=drafted * rounds,
                accepted_tokens=accepted * rounds,
            )
        )
    return LoadResult(sum(row.latency_s for row in rows), tuple(rows))


def token_s_of(setting: Setting) -> float:
    """A made-up server: drafting helps one user, and hurts eight."""
    length, users = setting.num_draft_tokens or 0, setting.concurrency
    plain = 0.020 * (1 + 0.1 * users)
    return plain if not length else plain / (1.9 - 0.15 * users - 0.05 * abs(length - 3))


@pytest.fixture
def load_of():
    return make_load


def build_report(slower: float = 1.0, sweeps: Sweeps | None = None, **fields) -> BenchReport:
    chosen = sweeps or Sweeps((0, 1, 2, 3, 4), (1, 2, 4, 8), (64, 512), (0.0, 1.0), ("int4",))
    wanted = dict(list_settings(chosen, "as deployed", 4, quick=True))
    for system in chosen.systems:
        wanted.update(list_settings(chosen, system, 4, quick=True))
    loads = {}
    for setting in wanted:
        length = setting.num_draft_tokens or 0
        accepted = min(length, 1 if setting.system == "int4" else 3)
        loads[setting] = [make_load(slower * token_s_of(setting) * (1 + 0.02 * b), length, accepted) for b in range(3)]
    steps = tuple(MeasuredSteps(b, 0.02, {1: 0.004, 4: 0.016}, {1: 0.021, 4: 0.025}) for b in (1, 2, 4, 8))
    points = assemble_points(loads, wanted, steps, 0)
    found = recommend_lengths(points)
    conditions = BenchConditions(
        date="2026-11-30T03:00:00+00:00",
        command="trtspec bench tiny.yaml",
        commit="abc",
        spec={"name": "tiny <b>pair</b>", "backend": "onnx"},
        systems={"as deployed": "target, draft"},
        server="triton 2.51",
        versions={"trtspec": "1"},
        cpu="a processor",
        cores=2,
        gpus="",
        prompts="built in",
        output_tokens=TOKENS,
        requests=6,
        seed=0,
        planned_blocks=3,
        budget_s=420.0,
    )
    break_even = find_break_even(points, 4)
    return BenchReport(
        **{
            "schema_version": SCHEMA_VERSION,
            "verdict": judge_bench(found, break_even, 4, False),
            "interrupted": False,
            "seconds": 100.0,
            "conditions": conditions,
            "points": points,
            "steps": steps,
            "break_even_concurrency": break_even,
            "recommendations": found,
            "notes": collect_notes(points, wanted),
            "machine": MachineLoad(0.9, 1, 2),
            "server_metrics": MetricsDelta({'nv_x{model="a"}': 3.0}, {}),
            **fields,
        }
    )


@pytest.fixture
def make_report():
    return build_report
