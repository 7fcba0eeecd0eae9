"""``trtspec check``: is what lies there whole?"""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("check")
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(checkpoint: Path, as_json: bool) -> None:
    """Check a TensorRT-LLM CHECKPOINT: every rank's tensors against config.json, every byte against manifest.json.

    Reads checkpoints only, for now; one that NVIDIA's converter wrote has no manifest, so its bytes are not compared.
    """
    from trt_spec.build.checkpoint.check import check_checkpoint
    from trt_spec.cli.progress import StepProgress

    with StepProgress() as progress:
        checked = check_checkpoint(checkpoint, progress.report)
    if as_json:
        click.echo(json.dumps({**vars(checked), "folder": str(checked.folder)}, indent=2))
        return
    contents = "every byte as written" if checked.has_digests else "contents not compared, there is no manifest"
    size = f"{checked.ranks} ranks, {checked.tensors} tensors, {checked.total_bytes / 1e9:.2f} GB"
    click.echo(f"{checkpoint} is whole: {size}; {contents}.", err=True)
