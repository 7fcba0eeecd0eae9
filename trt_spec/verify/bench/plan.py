"""From a spec and what a user asks to what is measured, and the conditions a report will state."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from trt_spec.errors import SpecError
from trt_spec.spec.model import Spec
from trt_spec.verify.bench.results import BenchConditions
from trt_spec.verify.bench.session import BenchOptions
from trt_spec.verify.bench.settings import PRIMARY, resolve_sweeps
from trt_spec.verify.conditions import read_cores, read_cpu, read_versions
from trt_spec.verify.machine import describe_gpus

QUICK_BUDGET_S = 480.0
"""Of the 10 minutes that --quick may take: the setting that runs when it is over, and the report, come on top."""

_QUICK = {"requests": 6, "output_tokens": 48, "budget_s": QUICK_BUDGET_S}


def resolve_bench(
    spec: Spec,
    sweeps: Sequence[str],
    *,
    quick: bool,
    prompts_path: Path | None,
    command: str,
    budget_s: float | None = None,
) -> tuple[BenchOptions, BenchConditions]:
    """Raises SpecError for sweeps that the spec does not allow, and for a spec that drafts nothing.

    ``budget_s`` None: that of --quick, and without it as long as it takes.
    """
    if not spec.external_draft_len:
        raise SpecError(
            f"The spec {spec.name!r} takes no draft length by request (backend {spec.backend}, mode "
            f"{spec.speculation.mode}), so there is nothing to sweep.",
            remedy="Compare two servers with `trtspec verify --url`, or bench mode draft_target or ngram of backend "
            "engine or onnx.",
        )
    options = BenchOptions(
        sweeps=resolve_sweeps(spec, sweeps, quick=quick),
        draft_len=spec.speculation.max_draft_len,
        quick=quick,
        prompts_path=prompts_path,
        **(_QUICK if quick else {}),  # type: ignore[arg-type]
    )
    if budget_s is not None:
        options = replace(options, budget_s=budget_s)
    conditions = BenchConditions(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        commit=read_commit(),
        spec=json.loads(spec.model_dump_json(exclude_none=True)),
        systems={PRIMARY: _describe(spec)} | dict.fromkeys(options.sweeps.systems, "the same but for this"),
        server="",
        versions=read_versions(),
        cpu=read_cpu(),
        cores=read_cores(),
        gpus=describe_gpus(),
        prompts=str(prompts_path or "built in"),
        output_tokens=options.output_tokens,
        requests=options.requests,
        seed=options.seed,
        planned_blocks=options.blocks,
        budget_s=options.budget_s,
    )
    return options, conditions


def _describe(spec: Spec) -> str:
    models = ", ".join(f"{role} {model.model} ({model.quantization})" for role, model in spec.models().items())
    return f"{models}, mode {spec.speculation.mode}, accept {spec.speculation.accept}"


def read_commit() -> str:
    """The commit of the checkout that trtspec runs from, with a + if files differ; empty for an installed one."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
