"""The endpoint as a command: ``python -m trt_spec.openai --triton HOST:PORT --repository DIR``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trt_spec.errors import EnvironmentMissing, SpecError, TrtspecError
from trt_spec.plan.openai_launch import EXTRA, PACKAGES
from trt_spec.serve.contract import STREAMING_MODEL

if TYPE_CHECKING:
    from trt_spec.openai.service import Service
    from trt_spec.openai.settings import Settings

_SHUTDOWN_S = 10  # answers that run may end
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TRTSPEC_OPENAI"})
@click.option("--triton", default="127.0.0.1:8001", show_default=True, help="HOST:PORT of Triton's gRPC.")
@click.option(
    "--repository",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The model repository that Triton serves, or a folder with the tokenizer's files.",
)
@click.option("--model-name", "model_names", multiple=True, help="What requests call the model.  [default: target]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=9000, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--chat-template", type=_FILE, help="Jinja file to use in place of the model's own template.")
@click.option("--api-key-file", type=_FILE, help="Keys that may ask, one a line; also in TRTSPEC_API_KEYS.")
@click.option("--allow-origin", "origins", multiple=True, help="Web site whose pages may ask (CORS); none by default.")
def command(
    triton: str,
    repository: Path,
    model_names: tuple[str, ...],
    host: str,
    port: int,
    chat_template: Path | None,
    api_key_file: Path | None,
    origins: tuple[str, ...],
) -> None:
    """Serve the OpenAI API in front of a Triton that serves a repository of trtspec.

    Every option can also be given in the environment: TRTSPEC_OPENAI_CHAT_TEMPLATE for --chat-template.
    """
    check_installed()
    from trt_spec.openai.api_keys import load_api_keys
    from trt_spec.openai.settings import Settings

    settings = Settings(
        triton=triton,
        model_names=model_names or ("target",),
        api_keys=load_api_keys(api_key_file, os.environ),
        allowed_origins=origins,
    )
    run(make_service(settings, repository, chat_template), host, port)


def check_installed() -> None:
    """Raise EnvironmentMissing unless the packages of the extra are there."""
    from importlib.util import find_spec

    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise EnvironmentMissing(
            f"The OpenAI endpoint needs the Python packages {', '.join(missing)}.",
            remedy=f"Install them with: {EXTRA}.",
        )


def make_service(settings: Settings, repository: Path, chat_template: Path | None = None) -> Service:
    """The service of a model repository, or of a folder with a tokenizer. SpecError where there is none."""
    from trt_spec.openai.chat_template import load_templates
    from trt_spec.openai.service import Service
    from trt_spec.openai.vocabulary import Vocabulary

    folder = find_tokenizer(repository)
    return Service(settings, Vocabulary(folder), load_templates(folder, chat_template))


def find_tokenizer(repository: Path) -> Path:
    """The folder whose tokenizer the orchestrator uses."""
    for folder in (repository, repository / STREAMING_MODEL / "1" / "tokenizer"):
        if (folder / "tokenizer.json").is_file():
            return folder
    raise SpecError(
        f"{repository} has no {STREAMING_MODEL}/1/tokenizer/tokenizer.json.",
        remedy="Name a model repository that `trtspec deploy` wrote.",
    )


def run(service: Service, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    import uvicorn

    from trt_spec.openai.app import make_app

    uvicorn.run(
        make_app(service),
        host=host,
        port=port,
        http="httptools",
        ws="none",
        access_log=False,  # a line a request costs more than a token; /metrics counts them
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        log_level="warning",
    )


def main() -> None:
    """Expected errors are one paragraph, as those of trtspec are."""
    try:
        command.main(prog_name="python -m trt_spec.openai")
    except TrtspecError as error:
        click.echo(f"trtspec: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
