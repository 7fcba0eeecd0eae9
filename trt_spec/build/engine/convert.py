"""The step that runs trtspec's own converter, in this process: it goes on where a killed run ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trt_spec.build.tasks import Context
from trt_spec.plan.finding import Finding
from trt_spec.plan.steps import Step


def convert_checkpoint(
    step: Step, source: Path, heads: Path | None, output: Path, context: Context
) -> tuple[dict[str, Any], list[Finding]]:
    """Write the TensorRT-LLM checkpoint of ``source`` to ``output``; what to record of it, and the warnings.

    ``heads`` is the folder of the Medusa heads, None for a step without any, or with a source that holds them.
    """
    from trt_spec.build.checkpoint.convert import Progress, run_convert
    from trt_spec.build.checkpoint.options import ConvertOptions, MedusaOptions

    def tell(progress: Progress) -> None:
        if context.stop.is_set():
            raise KeyboardInterrupt
        rate = f"{progress.rate_bytes_per_s / 1e6:.0f} MB/s"
        context.report(f"{step.id}: {rate}", progress.done_bytes / max(progress.total_bytes, 1))

    params: Mapping[str, Any] = step.params
    converted = run_convert(
        ConvertOptions(
            model=source,
            output=output,
            tensor_parallel=params["tensor_parallel"],
            pipeline_parallel=params["pipeline_parallel"],
            dtype=params["dtype"],
            quantization=params["quantization"],
            kv_cache_dtype=params["kv_cache_dtype"],
            tensorrt_llm=params["tensorrt_llm"],
            medusa=MedusaOptions(heads, params["medusa"]["max_draft_len"]) if "medusa" in params else None,
        ),
        tell,
    )
    findings = [Finding("convert", "warn", f"{step.role}: {text}", role=step.role) for text in converted.warnings]
    return {"dialect": converted.dialect, "dialect_basis": converted.dialect_basis}, findings


def converter_version() -> str:
    """Part of the step's identity: the converter raises it when it writes different bytes."""
    from trt_spec.build.checkpoint.convert import CONVERT_VERSION

    return str(CONVERT_VERSION)
