"""The ``trtspec`` command: a table of verbs, each imported only when it is asked for."""

from __future__ import annotations

import errno
import importlib
import sys
from typing import NamedTuple

import click

from trt_spec import __version__
from trt_spec.errors import TrtspecError


class Verb(NamedTuple):
    """One line of ``trtspec --help``; ``command`` in the module ``trt_spec.cli.<name>`` is the verb."""

    name: str
    summary: str


VERBS = (
    Verb("doctor", "What this machine can do, and what to install for the rest."),
    Verb("init", "Write a commented spec to start from."),
    Verb("plan", "Check a spec before the GPU hour: does the pair fit, work and pay?"),
    Verb("build", "Build the engines of a spec; only what changed is built again."),
    Verb("convert", "Convert a Hugging Face checkpoint for TensorRT-LLM, without a GPU."),
    Verb("check", "Find the faults of a model repository, an engine or a checkpoint, whoever wrote it."),
    Verb("deploy", "Write the Triton model repository of a built spec."),
    Verb("serve", "Start Triton on a deployed spec and wait until it is ready."),
    Verb("stop", "Stop the Triton server that serve started."),
    Verb("verify", "Prove that speculation is lossless and accepted, and measure its speed."),
    Verb("bench", "Measure what draft length, load and prompts do to speed and acceptance."),
    Verb("prove", "Replay the table of engine behaviours on a running server: which hold there?"),
    Verb("demo", "The whole pipeline on a real language model, on this CPU."),
)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Make room or choose another place."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Give yourself permission there, or choose another place."
    return "Run `trtspec --debug ...` to see where."


class VerbGroup(click.Group):
    """Lists verbs without importing them, and turns expected errors into one paragraph and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"trt_spec.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb.name, verb.summary) for verb in VERBS])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TrtspecError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"trtspec: {error}", err=True)
            sys.exit(error.exit_code)
        except BrokenPipeError:
            raise  # whoever read the output has left: click ends quietly
        except OSError as error:
            if ctx.params.get("debug"):
                raise
            where = f" ({error.filename})" if error.filename else ""
            click.echo(f"trtspec: {error.strerror or error}{where}. {_remedy(error)}", err=True)
            sys.exit(1)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            # Not foreseen, so a fault of ours or of a file that no check looked at; the traceback helps to tell.
            click.echo(
                f"trtspec: unexpected {type(error).__name__}: {error}. Run `trtspec --debug ...` to see where.",
                err=True,
            )
            sys.exit(1)
        except KeyboardInterrupt:
            if ctx.params.get("debug"):
                raise
            click.echo("trtspec: interrupted; run the same command again to continue.", err=True)
            sys.exit(130)


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trtspec")
@click.option("--debug", is_flag=True, help="Show Python tracebacks of expected errors.")
def main(debug: bool) -> None:
    """Speculative decoding on TensorRT-LLM and Triton from one spec file.

    plan -> build -> deploy -> serve -> verify. Start with `trtspec demo`.
    """
