"""``trtspec init``: a commented spec to start from."""

from __future__ import annotations

from pathlib import Path

import click

from trt_spec.spec.presets import DEFAULT_PRESET, load_preset, load_presets, write_preset


@click.command(name="init")
@click.argument("name", required=False)
@click.option("--preset", default=DEFAULT_PRESET, show_default=True, metavar="PRESET", help="Ready spec to start from.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="PATH", help="File to write. [default: NAME.yaml]"
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--list", "listing", is_flag=True, help="Show the presets and exit.")
def command(name: str | None, preset: str, output: Path | None, force: bool, listing: bool) -> None:
    """Write a commented spec called NAME, from a preset, to NAME.yaml."""
    if listing:
        presets = load_presets()
        width = max(len(each.name) for each in presets)
        for each in presets:
            click.echo(f"{each.name:<{width}}  {each.summary}")
        return
    if name is None:
        raise click.UsageError("Missing argument 'NAME': what the new spec is called (or use --list).")
    path = output or Path(f"{name}.yaml")
    write_preset(load_preset(preset), name, path, force=force)
    click.echo(f"Wrote {path} from preset {preset}. Edit it, then run: trtspec plan {path}", err=True)
