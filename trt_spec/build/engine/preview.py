"""What a build would run, told without running or writing anything: steps with their exact commands, and a script."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from trt_spec.build.engine.container import Place, container_argv
from trt_spec.build.engine.tasks import GPU_KINDS, step_gpus
from trt_spec.build.engine.toolchain import Toolchain, guess_toolchain, workspace_label
from trt_spec.build.run import STAGES, BuildOptions, Until
from trt_spec.plan.build_cost import StepCost, peak_disk_bytes
from trt_spec.plan.container_limits import limit_options
from trt_spec.plan.hardware import GIB
from trt_spec.plan.plan import Plan
from trt_spec.plan.steps import Step
from trt_spec.spec.reference import judge_reference

SCHEMA_VERSION = 1
PARTIAL = ".partial"


@dataclass(frozen=True)
class PreviewedStep:
    """A step, the command as it would be started here, its GPUs and its cost."""

    step: Step
    command: tuple[str, ...]
    gpus: tuple[int, ...]
    cost: StepCost


@dataclass(frozen=True)
class Preview:
    """``place`` is where NVIDIA's tools would run, guessed from what is installed; no program was asked."""

    plan: Plan
    place: str
    steps: tuple[PreviewedStep, ...]
    peak_disk_bytes: int


def preview_build(plan: Plan, options: BuildOptions) -> Preview:
    """Everything of a plan for backend engine that `trtspec build` would do. Pure but for looking for programs."""
    assert plan.engine is not None
    toolchain = guess_toolchain(plan.engine.profile, any(step.kind == "quantize" for step in plan.steps))
    costs = {cost.id: cost for cost in plan.engine.memory.steps}
    steps = tuple(
        PreviewedStep(step, _command(step, plan, toolchain, options), step_gpus(step, plan), costs[step.id])
        for step in plan.steps
        if _is_included(step, options)
    )
    peak = peak_disk_bytes([shown.cost for shown in steps], options.discard_checkpoint)
    return Preview(plan, toolchain.place, steps, peak)


def _is_included(step: Step, options: BuildOptions) -> bool:
    order = get_args(Until)
    return order.index(STAGES[step.kind]) <= order.index(options.until)


def _command(step: Step, plan: Plan, toolchain: Toolchain, options: BuildOptions) -> tuple[str, ...]:
    if step.kind not in GPU_KINDS:
        return step.argv
    gpus = step_gpus(step, plan)
    if toolchain.runtime is None:
        return ("env", f"CUDA_VISIBLE_DEVICES={','.join(map(str, gpus))}", *step.argv)
    root, output = options.workspace.root, step.outputs[0]
    reads = tuple(folder for folder in step.inputs if not folder.is_relative_to(root))
    place = Place(root, reads, gpus, len(gpus), output / ".tmp", f"trtspec-{step.id}")
    return (*container_argv(toolchain.runtime, toolchain.profile.container, place, ()), *step.argv)


def render_preview(preview: Preview) -> str:
    """The preview as text for people."""
    assert preview.plan.engine is not None
    profile = preview.plan.engine.profile
    lines = [
        f"TensorRT-LLM {profile.version} (TensorRT {profile.tensorrt}, CUDA {profile.cuda}, driver from "
        f"{profile.min_driver}) in {preview.place}",
        *(f"  trust of {name}: {trust}" for name, trust in profile.trust.items()),
        *(f"  {finding.severity}: {finding.message}" for finding in preview.plan.findings),
        "",
    ]
    for shown in preview.steps:
        cost = shown.cost
        gpus = f"GPU {', '.join(map(str, shown.gpus))}, " if shown.gpus else ""
        lines += [
            f"{shown.step.id}: {gpus}RAM {cost.host_memory_bytes / GIB:.1f} GiB, disk {cost.disk_bytes / GIB:.1f} GiB, "
            f"about {cost.wall_time_s / 60:.0f} min",
            f"  {shlex.join(shown.command)}",
        ]
    lines += ["", f"at most {preview.peak_disk_bytes / GIB:.1f} GiB on disk at once; estimates, nothing was run"]
    return "\n".join(lines) + "\n"


def preview_document(preview: Preview) -> dict[str, Any]:
    """The preview as one JSON document; keys are only ever added."""
    assert preview.plan.engine is not None
    profile = preview.plan.engine.profile
    return {
        "schema": SCHEMA_VERSION,
        "name": preview.plan.spec.name,
        "toolchain": {"tensorrt_llm": profile.version, "place": preview.place, "trust": dict(profile.trust)},
        "findings": [asdict(finding) for finding in preview.plan.findings],
        "peak_disk_bytes": preview.peak_disk_bytes,
        "steps": [
            {
                "id": shown.step.id,
                "kind": shown.step.kind,
                "gpus": list(shown.gpus),
                "argv": list(shown.step.argv),
                "command": shlex.join(shown.command),
                "host_memory_bytes": shown.cost.host_memory_bytes,
                "disk_bytes": shown.cost.disk_bytes,
                "wall_time_s": shown.cost.wall_time_s,
            }
            for shown in preview.steps
        ],
    }


def render_script(plan: Plan, options: BuildOptions) -> str:
    """The same steps as a bash script for a host without trtspec's automation; it holds no secret.

    Tools of NVIDIA run in the pinned container, by docker, or with NATIVE=1 right where the script runs (inside that
    container, or under Slurm). Each step writes beside its folder and is renamed when it is complete, so the script can
    be started again.
    """
    return "\n".join(_script_lines(plan, options)) + "\n"


def _script_lines(plan: Plan, options: BuildOptions) -> Iterator[str]:
    assert plan.engine is not None
    profile, root = plan.engine.profile, options.workspace.root
    yield "#!/usr/bin/env bash"
    yield f"# Builds the engines of {plan.spec.name} with TensorRT-LLM {profile.version}; written by trtspec build."
    yield "# NATIVE=1: run NVIDIA's tools right here, inside the container or under Slurm; otherwise in docker."
    yield "# Downloads need `hf` (huggingface_hub) and its login, conversions `trtspec`."
    yield "set -euo pipefail"
    yield f"WORKSPACE={shlex.quote(str(root))}"
    yield f"IMAGE={shlex.quote(profile.container)}"
    yield 'mkdir -p "$WORKSPACE"'
    yield from _functions(plan, root)
    for step in plan.steps:
        if not _is_included(step, options):
            continue
        output = str(step.outputs[0])
        argv = [word.replace(output, output + PARTIAL) if word.startswith(output) else word for word in step.argv]
        runner = f"tool {','.join(map(str, step_gpus(step, plan)))} " if step.kind in GPU_KINDS else ""
        yield ""
        yield f"# {step.id}"
        yield f"if [[ ! -d {shlex.quote(output)} ]]; then"
        if step.kind == "trtllm_build":  # the others go on where they were
            yield f"  rm -rf {shlex.quote(output + PARTIAL)}"
        yield f"  mkdir -p {shlex.quote(str(step.outputs[0].parent))}"
        yield f"  {runner}{shlex.join(argv)}"
        yield f"  mv {shlex.quote(output + PARTIAL)} {shlex.quote(output)}"
        yield "fi"
        if step.kind == "trtllm_build":
            yield f"inspect {shlex.quote(output)} {shlex.quote(json.dumps(_expectations(plan, step)))}"
            if options.discard_checkpoint:
                yield f"rm -rf {shlex.quote(str(step.inputs[0]))}"


def _functions(plan: Plan, root: Path) -> Sequence[str]:
    ranks = max(model.tensor_parallel * model.pipeline_parallel for model in plan.spec.models().values())
    folders = [model.model for model in plan.spec.models().values() if judge_reference(model.model) == "folder"]
    reads = "".join(f" --volume {shlex.quote(f'{folder}:{folder}:ro')}" for folder in dict.fromkeys(folders))
    return (
        "",
        "tool() {  # GPUS COMMAND...",
        '  local gpus="$1"; shift',
        "  if [[ ${NATIVE:-0} == 1 ]]; then",
        '    CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$gpus" "$@"',
        "  else",
        f'    docker run --rm --init --label {workspace_label(root)} --user "$(id -u):$(id -g)" \\',
        f'      --gpus "\\"device=$gpus\\"" {" ".join(limit_options(ranks))} \\',
        f'      --volume "$WORKSPACE:$WORKSPACE"{reads} --env HOME=/tmp --env HF_TOKEN "$IMAGE" "$@"',
        "  fi",
        "}",
        "",
        "inspect() {  # ENGINE EXPECTED: trtllm-build changes some settings in silence",
        '  python3 - "$1/config.json" "$2" <<\'PYTHON\'',
        "import json, sys",
        "found, expected = json.load(open(sys.argv[1])), json.loads(sys.argv[2])",
        "faults = []",
        "for path, wanted in expected.items():",
        "    value = found",
        '    for key in path.split("/"):',
        "        value = value.get(key) if isinstance(value, dict) else None",
        "    value = value.lower() if isinstance(value, str) else value",
        "    if value != wanted:",
        '        faults.append(f"{path} is {value!r}, planned {wanted!r}")',
        'sys.exit(f"{sys.argv[1]}: " + "; ".join(faults) if faults else 0)',
        "PYTHON",
        "}",
    )


def _expectations(plan: Plan, step: Step) -> dict[str, Any]:
    """What must stand in the engine's config.json, by path; text in lower case."""
    assert plan.engine is not None
    limits, model = plan.engine.limits[step.role], plan.spec.models()[step.role]
    medusa = plan.engine.medusa if step.role == "target" else None
    heads = {} if medusa is None else {"pretrained_config/num_medusa_heads": medusa.heads.count}
    return {
        **heads,
        "version": plan.engine.profile.version,
        "build_config/max_draft_len": limits.max_draft_len,
        "build_config/max_batch_size": limits.max_batch_size,
        "build_config/max_seq_len": limits.engine_max_seq_len,
        "build_config/kv_cache_type": "paged",
        "build_config/plugin_config/use_paged_context_fmha": True,
        "pretrained_config/mapping/world_size": model.tensor_parallel * model.pipeline_parallel,
    }
