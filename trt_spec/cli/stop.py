"""``trtspec stop``: end the server that ``trtspec serve`` started."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("stop")
@click.argument("target", metavar="[SPEC|WORKSPACE]", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder given to serve -o.")
def command(target: Path | None, workspace: Path | None) -> None:
    """Stop the Triton server of a spec or workspace; without one, all of those below ./workspace.

    Stopping what no longer runs is no error.
    """
    from trt_spec.deploy.host.server import stop_triton
    from trt_spec.deploy.workspace import resolve_stop

    stopped = [server for place in resolve_stop(target, workspace) if (server := stop_triton(place)) is not None]
    for server in stopped:
        click.echo(f"Stopped Triton (process {server.pid}, {server.http_url}).", err=True)
    if not stopped:
        click.echo("No server of trtspec is running there.", err=True)
