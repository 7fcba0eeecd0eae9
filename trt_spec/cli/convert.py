"""``trtspec convert``: a Hugging Face checkpoint to TensorRT-LLM's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from trt_spec.spec.model import Dtype, KvCacheDtype, Quantization

if TYPE_CHECKING:
    from trt_spec.build.checkpoint.convert import Progress

HEADS = click.Path(file_okay=False, path_type=Path)
SIZE = click.IntRange(min=1)
DTYPES = click.Choice(get_args(Dtype))
QUANTIZATIONS = click.Choice(("auto", *get_args(Quantization)))
EMBEDDING_AXES: dict[str | None, Literal[0, 1] | None] = {None: None, "0": 0, "1": 1}
KV_CACHE_DTYPES = click.Choice(get_args(KvCacheDtype))


@click.command("convert")
@click.argument("model")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="New or empty folder to write.")
@click.option("--tp", type=SIZE, default=1, show_default=True, help="Tensor-parallel ranks.")
@click.option("--pp", type=SIZE, default=1, show_default=True, help="Pipeline-parallel ranks.")
@click.option("--dtype", type=DTYPES, default="auto", show_default=True, help="Of what is unquantised.")
@click.option("--quantization", type=QUANTIZATIONS, default="auto", show_default=True, help="Of weights.")
@click.option("--kv-cache-dtype", type=KV_CACHE_DTYPES, default="auto", show_default=True, help="Of the KV cache.")
@click.option("--meta-recipe", is_flag=True, help="fp8_rowwise without attention, first and last layer, as Meta's.")
@click.option("--parallel-embedding", type=click.Choice(("0", "1")), help="Split the embedding by rows or columns.")
@click.option("--medusa-heads", type=HEADS, help="Folder of Medusa heads to add; not if MODEL holds them.")
@click.option("--medusa-draft-len", type=SIZE, help="Write a Medusa checkpoint for trees of so many nodes.")
@click.option("--tensorrt-llm", metavar="V", help="Version to write for.  [default: that of new specs]")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line, the last one the result.")
def command(model: str, output: Path, as_json: bool, **settings: Any) -> None:
    """Convert MODEL, a local folder or the demo model, to a TensorRT-LLM checkpoint in exactly NVIDIA's layout.

    Needs no GPU, torch or tensorrt_llm. Run again after an interruption, it goes on with the ranks that are missing.
    """
    from trt_spec.build.checkpoint.convert import run_convert
    from trt_spec.build.checkpoint.options import ConvertOptions, MedusaOptions
    from trt_spec.build.source.resolve import load_model_folder
    from trt_spec.cli.progress import StepProgress
    from trt_spec.util.cache import resolve_cache_dir

    heads, draft_len = settings["medusa_heads"], settings["medusa_draft_len"]
    if heads is not None and draft_len is None:
        raise click.UsageError("--medusa-heads needs --medusa-draft-len, the nodes of the tree.")
    with StepProgress() as progress:

        def report(now: Progress) -> None:
            if as_json:
                click.echo(json.dumps({"event": "progress", **vars(now)}))
            else:
                progress.report(_describe(now), now.done_bytes / now.total_bytes)

        # A path is a path here, with or without ./ in front; a hub id gets its explanation.
        reference = str(Path(model).absolute()) if Path(model).exists() else model
        options = ConvertOptions(
            load_model_folder(reference, cache_dir=resolve_cache_dir(), progress=progress.report),
            output,
            tensor_parallel=settings["tp"],
            pipeline_parallel=settings["pp"],
            medusa=None if draft_len is None else MedusaOptions(heads, draft_len),
            embedding_axis=EMBEDDING_AXES[settings["parallel_embedding"]],
            **{key: settings[key] for key in ("dtype", "quantization", "kv_cache_dtype", "meta_recipe")},
            **({"tensorrt_llm": settings["tensorrt_llm"]} if settings["tensorrt_llm"] else {}),
        )
        done = run_convert(options, report)
    for warning in done.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if as_json:
        click.echo(json.dumps({"event": "finished", **vars(done), "output": str(done.output)}))
        return
    size = f"{done.ranks} ranks, {done.total_bytes / 1e9:.2f} GB, format {done.dialect} ({done.dialect_basis})"
    click.echo(f"Converted to {done.output}: {size}, in {done.duration_s:.1f} s.", err=True)
    if done.reused:
        click.echo(f"Kept from before: {', '.join(done.reused)}.", err=True)


def _describe(now: Progress) -> str:
    left = "" if now.remaining_s is None else f", {now.remaining_s:.0f} s left"
    return f"{now.done_bytes / 1e9:.2f} of {now.total_bytes / 1e9:.2f} GB, {now.rate_bytes_per_s / 1e9:.2f} GB/s{left}"
