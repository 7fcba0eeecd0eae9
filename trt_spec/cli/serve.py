"""``trtspec serve``: start Triton on a deployed spec and wait until it is ready."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from trt_spec.deploy.host.launch import LaunchOptions
    from trt_spec.deploy.host.server import RunningServer

_PORT = click.IntRange(1, 65535)
_NEWS_EVERY_S = 5.0


@click.command("serve")
@click.argument("target", metavar="SPEC|REPO", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder of build and deploy.")
@click.option("--detach", is_flag=True, help="Return once the server is ready; `trtspec stop` ends it.")
@click.option("--host", help="Address to listen on.  [default: the spec's]")
@click.option("--http-port", type=_PORT, help="Port of HTTP.  [default: the spec's]")
@click.option("--grpc-port", type=_PORT, help="Port of gRPC.  [default: the spec's]")
@click.option("--metrics-port", type=_PORT, help="Port of the metrics.  [default: the spec's]")
@click.option("--openai-port", type=_PORT, help="Port of the OpenAI API, served beside Triton.  [default: the spec's]")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), help="Seconds to wait for the models to load.")
def command(target: Path, workspace: Path | None, detach: bool, timeout_s: float | None, **listen: Any) -> None:
    """Serve a deployed SPEC, or any model repository REPO, and stop it at Ctrl-C.

    Backend onnx and bare repositories get the CPU server of the nvidia-pytriton package. Backends engine and llmapi get
    NVIDIA's Triton on this GPU host: the one here, or the version's container by docker.

    In the foreground the server is watched: when one of its processes ends or it stays unready for 30 s, all of it is
    stopped and the exit code is 1. With --detach nobody watches; `trtspec stop` ends what is left.
    """
    from trt_spec.deploy.host.foreground import run_until_stopped
    from trt_spec.deploy.host.launch import launch_triton
    from trt_spec.deploy.workspace import resolve_launch

    options = resolve_launch(target, workspace, listen, timeout_s)
    click.echo(f"Starting Triton on {options.repository}{_describe_place(options)}", err=True)
    if detach:
        _print_endpoints(launch_triton(options, _Waiting().report))
        click.echo(f"Stop it with: trtspec stop {options.workspace}", err=True)
        return
    run_until_stopped(options, _announce, _Waiting().report)
    click.echo("Triton has stopped.", err=True)


def _describe_place(options: LaunchOptions) -> str:
    if options.gpu_host is None:
        return ""
    runner = options.gpu_host.runner
    return f" in {runner.image}" if runner.server is None else f" with {runner.server}"


class _Waiting:
    """Says on stderr how long the start takes, every few seconds."""

    def __init__(self) -> None:
        self._next_s = _NEWS_EVERY_S

    def report(self, waited_s: float) -> None:
        if waited_s >= self._next_s:
            click.echo(f"Waiting for the models to load: {waited_s:.0f} s", err=True)
            self._next_s += _NEWS_EVERY_S


def _announce(server: RunningServer) -> None:
    _print_endpoints(server)
    click.echo("Stop it with Ctrl-C.", err=True)


def _print_endpoints(server: RunningServer) -> None:
    click.echo(f"Triton is ready (process {server.pid}), log in {server.log}", err=True)
    click.echo(f"  HTTP     {server.http_url}", err=True)
    click.echo(f"  gRPC     {server.grpc_url}", err=True)
    click.echo(f"  metrics  {server.metrics_url}", err=True)
    if server.openai_url is not None:
        click.echo(f"  OpenAI   {server.openai_url}/v1", err=True)
