"""How each step of backend engine is made: the command is run or the converter called, and the output judged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from trt_spec.build.engine.container import SECRET_VARIABLES, Place, render_command
from trt_spec.build.engine.convert import convert_checkpoint
from trt_spec.build.engine.diagnosis import diagnose
from trt_spec.build.engine.fetch import fetch_command, read_commit, read_fault
from trt_spec.build.engine.host import read_available_memory_bytes
from trt_spec.build.engine.inspect import CONFIG_FILE, Expected, inspect_engine
from trt_spec.build.engine.process import Command, Outcome, read_last_line, read_tail, run_command
from trt_spec.build.engine.toolchain import Toolchain
from trt_spec.build.source.shards import load_json_object
from trt_spec.build.source.tokenizer_files import COPIED_FILES, GENERATION_FILE, write_tokenizer_files
from trt_spec.build.tasks import Context
from trt_spec.errors import StepFailed
from trt_spec.plan.engine_record import SeenGpu
from trt_spec.plan.finding import Finding, is_refused
from trt_spec.plan.plan import Plan
from trt_spec.plan.steps import Step
from trt_spec.plan.workspace import Workspace

SCRATCH = ".tmp"  # inside the output while it is made, so that nothing else needs cleaning


@dataclass
class Bench:
    """What the steps of one build share. The toolchain is found only if a step needs it.

    ``lock`` is the descriptor of the workspace's lock, ``memory`` the host bytes that each step was planned with.
    """

    workspace: Workspace
    lock: int | None = None
    toolchain: Toolchain | None = None
    seen: Sequence[SeenGpu] = ()
    memory: Mapping[str, int] = field(default_factory=dict)


def make_source(step: Step, bench: Bench, output: Path, context: Context) -> Mapping[str, Any]:
    """Fetch a hub model; an earlier, interrupted download in ``output`` goes on."""
    command = Command(
        fetch_command(step.source, step.params["revision"], output),
        dict(os.environ),
        secrets=SECRET_VARIABLES,
    )
    record = _run(step, command, bench, context, is_fetch=True)
    return {**record, "commit": read_commit(output)}


def make_converted(step: Step, source: Path, heads: Path | None, output: Path, context: Context) -> Mapping[str, Any]:
    """Convert with trtspec's own converter, Medusa heads too; the tokenizer's files come along for the engine."""
    record, findings = convert_checkpoint(step, source, heads, output, context)
    _keep_tokenizer(source, output)
    return {**record, "findings": [asdict(finding) for finding in findings]}


def make_checkpoint(
    step: Step, source: Path, gpus: tuple[int, ...], bench: Bench, output: Path, context: Context
) -> Mapping[str, Any]:
    """Quantise with NVIDIA's script, which writes a TensorRT-LLM checkpoint."""
    argv = tuple(str(source) if word == step.source else word for word in step.argv)
    record = _run_tool(step, argv, (source,), gpus, bench, output, context, uses_hub=True)
    ranks = step.params["tensor_parallel"] * step.params["pipeline_parallel"]
    wanted = [CONFIG_FILE, *(f"rank{rank}.safetensors" for rank in range(ranks))]
    missing = [name for name in wanted if not (output / name).is_file()]
    if missing:
        raise StepFailed(
            f"{step.id}: quantize.py ended well but left no {', '.join(missing)}.",
            remedy=f"See {record['log']}.",
            step=step.id,
            log_path=Path(record["log"]),
        )
    _keep_tokenizer(source, output)
    return record


def make_engine(
    step: Step, plan: Plan, gpus: tuple[int, ...], bench: Bench, output: Path, context: Context
) -> Mapping[str, Any]:
    """Build an engine, read it back, and refuse one that is not what was planned."""
    (checkpoint,) = step.inputs
    record = _run_tool(step, step.argv, (), gpus, bench, output, context)
    assert plan.engine is not None
    role, engine = step.role, plan.engine
    medusa = engine.medusa.heads if engine.medusa is not None and role == "target" else None
    expected = Expected(role, plan.spec.models()[role], plan.facts[role], engine.limits[role], engine.profile, medusa)
    findings = inspect_engine(output, expected)
    if is_refused(findings):
        _refuse(step, findings, Path(record["log"]), output)
    for name in (*COPIED_FILES, GENERATION_FILE):
        if (checkpoint / name).is_file():
            shutil.copyfile(checkpoint / name, output / name)
    return {**record, "findings": [asdict(finding) for finding in findings]}


def _keep_tokenizer(source: Path, output: Path) -> None:
    write_tokenizer_files(source, load_json_object(source / "config.json"), output)


def _refuse(step: Step, findings: Iterable[Finding], log: Path, output: Path) -> NoReturn:
    """The engine goes; its configuration stays beside the log, to be looked at."""
    kept = log.with_suffix(".config.json")
    if (output / CONFIG_FILE).is_file():
        shutil.copyfile(output / CONFIG_FILE, kept)
    refused = [finding for finding in findings if finding.severity == "refuse"]
    raise StepFailed(
        f"{step.id}: trtllm-build ended well, but the engine is not what was planned. "
        + " ".join(finding.message for finding in refused),
        remedy=" ".join(dict.fromkeys(finding.remedy for finding in refused if finding.remedy))
        + f" The engine was removed; its configuration is {kept}, the log {log}.",
        step=step.id,
        log_path=log,
    )


def _run_tool(
    step: Step,
    argv: Sequence[str],
    reads: tuple[Path, ...],
    gpus: tuple[int, ...],
    bench: Bench,
    output: Path,
    context: Context,
    uses_hub: bool = False,
) -> dict[str, Any]:
    """Run one of NVIDIA's tools with ``output`` in place of the step's folder."""
    toolchain = bench.toolchain
    assert toolchain is not None, "a step that runs a tool is missing, so the toolchain was found"
    scratch = output / SCRATCH
    scratch.mkdir()
    place = Place(
        workspace=bench.workspace.root,
        reads=tuple(folder for folder in reads if not folder.is_relative_to(bench.workspace.root)),
        gpus=gpus,
        ranks=len(gpus),
        scratch=scratch,
        name=container_name(step, output),
        uses_hub=uses_hub,
    )
    command = render_command(toolchain, _redirect(argv, step.outputs[0], output), place)
    record = _run(step, command, bench, context)
    shutil.rmtree(scratch, ignore_errors=True)
    used = [gpu for gpu in bench.seen if gpu.index in gpus]
    return {
        **record,
        "toolchain": {
            "tensorrt_llm": toolchain.profile.version,
            "tensorrt": toolchain.profile.tensorrt,
            "cuda": toolchain.profile.cuda,
            "container": None if toolchain.runtime is None else toolchain.profile.container,
            "runtime": toolchain.runtime or "native",
            "trust": dict(toolchain.profile.trust),
        },
        "gpus": [asdict(gpu) for gpu in used],
    }


def container_name(step: Step, output: Path) -> str:
    """Unlike any other: the folder that is being written has a random part in its name."""
    return f"trtspec-{step.id}-{output.name.strip('.').replace('.', '-')}"


def _redirect(argv: Sequence[str], folder: Path, output: Path) -> tuple[str, ...]:
    """The command line with paths in ``folder`` moved to ``output``, where the step writes until it is complete."""
    old, new = str(folder), str(output)
    return tuple(new + word.removeprefix(old) if word == old or word.startswith(f"{old}/") else word for word in argv)


def _run(step: Step, command: Command, bench: Bench, context: Context, is_fetch: bool = False) -> dict[str, Any]:
    """Run a command; what to record of it. Raises StepFailed with a diagnosis, or what a download said of itself."""
    log = new_log_path(bench.workspace, step)
    started = datetime.now(UTC)

    def tell(line: str) -> None:
        seconds = int((datetime.now(UTC) - started).total_seconds())
        context.report(f"{step.id}: {seconds // 60}:{seconds % 60:02}  {line}", None)

    tell("started")
    outcome = run_command(command, log, status=tell, stop=context.stop, hold=bench.lock)
    if outcome.code != 0:
        fault = read_fault(read_last_line(log, limit=None)) if is_fetch else None
        raise fault or _failure(step, outcome, log, bench)
    is_measured = bench.toolchain is None or bench.toolchain.runtime is None or is_fetch
    return {
        "command": list(command.argv),
        "command_s": round(outcome.duration_s, 3),
        # In a container only its client is seen from here.
        "peak_memory_bytes": outcome.peak_memory_bytes if is_measured else None,
        "log": str(log),
    }


def new_log_path(workspace: Workspace, step: Step) -> Path:
    """A log of its own for every attempt; the folder is made."""
    workspace.logs.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    return workspace.logs / f"{step.id}.{stamp}.log"


def _failure(step: Step, outcome: Outcome, log: Path, bench: Bench) -> StepFailed:
    available = read_available_memory_bytes()
    known = diagnose(outcome.code, read_tail(log), bench.memory.get(step.id, 0), available)
    how = f"was ended by signal {-outcome.code}" if outcome.code < 0 else f"failed with exit code {outcome.code}"
    last = read_last_line(log)
    said = known.sentence if known else f"Its last line: {last}" if last else "It said nothing."
    return StepFailed(
        f"{step.id} {how}. {said}",
        remedy=f"{known.remedy if known else ''} The whole log: {log}.".strip(),
        step=step.id,
        command=step.argv,
        code=outcome.code,
        log_path=log,
    )
