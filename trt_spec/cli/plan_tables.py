"""The tables of ``trtspec plan`` on a terminal."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from trt_spec.cli.plan_llmapi import print_llmapi
from trt_spec.cli.plan_medusa import print_medusa
from trt_spec.cli.plan_table import print_table
from trt_spec.plan.build_cost import peak_disk_bytes
from trt_spec.plan.hardware import GIB
from trt_spec.plan.plan import EnginePlan, Plan

if TYPE_CHECKING:
    from rich.console import Console

    from trt_spec.plan.speed import SpeedPrediction

STYLES = {"refuse": "red", "warn": "yellow", "note": "dim"}


def print_plan(plan: Plan, console: Console) -> None:
    """Findings first, then what is derived from the spec, then every step with its command."""
    _print_findings(plan, console)
    _print_models(plan, console)
    if plan.engine is not None:
        _print_toolchain(plan.engine, console)
        _print_memory(plan.engine, console)
        _print_limits(plan.engine, console)
        if plan.engine.medusa is not None:
            print_medusa(plan.engine.medusa, console)
        elif plan.engine.speed is not None:
            _print_speed(plan.engine.speed, console)
    if plan.llmapi is not None:
        print_llmapi(plan.llmapi, console)
    _print_steps(plan, console)
    verdict = "REFUSED: see the findings above" if plan.refused else "the plan holds"
    console.print(f"{plan.spec.name}: {verdict}", style="red" if plan.refused else "green", highlight=False)


def _print_findings(plan: Plan, console: Console) -> None:
    from rich.markup import escape

    for finding in plan.findings:
        text = f"{finding.severity}: {finding.message} {finding.remedy}".rstrip() + f"  [{finding.code}]"
        console.print(escape(text), style=STYLES[finding.severity], highlight=False)


def _print_models(plan: Plan, console: Console) -> None:
    rows = []
    for role, facts in plan.facts.items():
        model = plan.spec.models()[role]
        shape = f"{facts.layers} x {facts.hidden_size}, {facts.heads}/{facts.kv_heads} heads of {facts.head_dim}"
        rows.append((role, model.model, f"{facts.parameters / 1e9:.2f} B", shape, model.quantization))
    print_table(console, "models", ("role", "model", "parameters", "layers, heads/kv heads", "quantisation"), rows)


def _print_toolchain(engine: EnginePlan, console: Console) -> None:
    profile = engine.profile
    console.print(
        f"TensorRT-LLM {profile.version} (TensorRT {profile.tensorrt}, CUDA {profile.cuda}, driver from "
        f"{profile.min_driver}) in {profile.container}",
        highlight=False,
        soft_wrap=True,
    )
    for name, trust in profile.trust.items():
        console.print(f"  trust of {name}: {trust}", highlight=False, soft_wrap=True, style="dim")


def _print_memory(engine: EnginePlan, console: Console) -> None:
    rows = []
    for gpu in engine.memory.gpus:
        for rank in gpu.engines:
            pool = engine.memory.pools[rank.role]
            gib = [f"{value / GIB:.1f}" for value in (rank.weights_bytes, rank.fixed_bytes - rank.weights_bytes)]
            held = f"{rank.kv_bytes / GIB:.1f}", f"{pool.max_tokens}"
            rows.append((str(gpu.index), f"{rank.role} rank {rank.rank}", *gib, *held))
    columns = ("GPU", "engine", "weights GiB", "buffers GiB", "KV cache GiB", "KV cache tokens")
    print_table(console, f"memory of each GPU ({engine.memory.gpus[0].total_bytes / GIB:.1f} GiB)", columns, rows)
    steps = [
        (
            step.id,
            f"{step.host_memory_bytes / GIB:.1f}",
            f"{step.gpu_memory_bytes / GIB:.1f}",
            f"{step.disk_bytes / GIB:.1f}",
            f"{step.wall_time_s / 60:.0f}",
        )
        for step in engine.memory.steps
    ]
    full, less = (peak_disk_bytes(engine.memory.steps, discards) / GIB for discards in (False, True))
    title = f"what the build needs (estimates); at most {full:.1f} GiB on disk, {less:.1f} with --discard-checkpoint"
    print_table(console, title, ("step", "RAM GiB", "GPU GiB", "disk GiB", "minutes"), steps)


def _print_limits(engine: EnginePlan, console: Console) -> None:
    rows = [
        (
            role,
            f"{limits.max_seq_len}",
            f"{limits.max_num_tokens}",
            f"{limits.effective_verify_batch} of {limits.max_batch_size}",
            ", ".join(map(str, engine.placement.roles[role].gpus)),
            ", ".join(map(str, engine.placement.roles[role].participant_ids)) or "-",
        )
        for role, limits in engine.limits.items()
    ]
    columns = ("engine", "max_seq_len", "max_num_tokens", "full sequences a step", "GPUs", "MPI ranks")
    title = f"limits and placement ({engine.placement.mode}, world size {engine.placement.world_size})"
    print_table(console, title, columns, rows)


def _print_speed(speed: SpeedPrediction, console: Console) -> None:
    rows = [
        (
            str(row.batch),
            str(row.best_draft_len),
            f"{row.best_speedup:.2f}x",
            f"{row.best_low:.2f} to {row.best_high:.2f}",
            f"{row.plain_tokens_per_s:.1f}",
            f"{row.best_tokens_per_s:.1f}",
            "-" if row.break_even_alpha is None else f"{row.break_even_alpha:.2f}",
            "-" if row.best_price_per_million is None else f"{row.best_price_per_million:.2f}",
        )
        for row in speed.batches
    ]
    columns = ("batch", "best length", "gain", "bounds", "plain tok/s", "tok/s", "break-even", "price a million")
    print_table(console, f"predicted speed: {speed.acceptance.explanation}", columns, rows)


def _print_steps(plan: Plan, console: Console) -> None:
    for step in plan.steps:
        command = shlex.join(step.argv) if step.argv else f"(inside trtspec build) from {step.source}"
        console.print(f"{step.id}: {command}", highlight=False, soft_wrap=True, markup=False)
    if plan.engine is not None and plan.engine.launch is not None:
        console.print(f"launch: {plan.engine.launch.shell_line()}", highlight=False, soft_wrap=True, markup=False)
