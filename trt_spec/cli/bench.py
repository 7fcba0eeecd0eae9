"""``trtspec bench``: how draft length, load and prompts decide what speculation gains."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trt_spec.spec.model import Spec
    from trt_spec.verify.bench.results import BenchReport

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
TUNING_FILE = "tuning.patch"


@click.command("bench")
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--workspace", type=_FOLDER, help="Folder of build and deploy.  [default: ./workspace/NAME]")
@click.option("--quick", is_flag=True, help="Fewer, shorter answers, and at most 10 minutes.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="As many of 5 blocks as fit.  [default: all; with --quick: 8]",
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME[=V,V]",
    help="Measure this alone; repeatable. draft_len, concurrency, prompt_tokens, temperature, draft (int4, layers:N, a "
    "spec file), accept.",
)
@click.option("--prompts", type=_FILE, help='JSON Lines file: {"text": "..."} a line.')
@click.option("--report", type=_FOLDER, help="Folder for the report.  [default: WORKSPACE/reports/bench]")
@click.option("--write-tuning", is_flag=True, help=f"Write {TUNING_FILE} too: the best draft length and acceptance.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
@click.option("--compare", nargs=2, type=_FILE, metavar="A B", help="Compare two bench.json: did B become slower?")
def command(
    spec: Path | None,
    workspace: Path | None,
    quick: bool,
    minutes: float | None,
    sweeps: tuple[str, ...],
    prompts: Path | None,
    report: Path | None,
    write_tuning: bool,
    as_json: bool,
    compare: tuple[Path, Path] | None,
) -> None:
    """Measure SPEC's speed and acceptance over draft length, drafts, prompt length, load and temperature.

    Measures the server that `trtspec serve SPEC` started; if none runs, builds what is missing, starts one and stops it
    at the end. Other drafts get a server of their own, one after the other. Ctrl-C ends early with a report of what was
    measured. Writes bench.html, bench.json and bench.md.

    With --compare, exits with 4 when B is slower or accepts less than A beyond chance.
    """
    if compare is not None:
        _compare(compare, as_json)
        return
    if spec is None:
        raise click.UsageError("Missing argument 'SPEC': the file that says what to measure.")
    from rich.console import Console

    from trt_spec.cli.bench_servers import list_systems
    from trt_spec.plan.workspace import resolve_workspace
    from trt_spec.spec.load import load_spec
    from trt_spec.verify.bench.figures import check_matplotlib
    from trt_spec.verify.bench.plan import resolve_bench
    from trt_spec.verify.bench.render import print_bench, write_bench
    from trt_spec.verify.bench.session import Bench
    from trt_spec.verify.bench.verdict import check_measured
    from trt_spec.verify.results import to_json

    check_matplotlib()
    loaded = load_spec(spec)
    place = resolve_workspace(loaded.name, workspace)
    options, conditions = resolve_bench(
        loaded,
        sweeps,
        quick=quick,
        prompts_path=prompts,
        command=shlex.join(["trtspec", *sys.argv[1:]]),
        budget_s=None if minutes is None else 60 * minutes,
    )
    bench = Bench(options, list_systems(loaded, place, options.sweeps, _say), conditions, _say)
    folder = report or place.reports / "bench"
    try:
        bench.run()
    finally:
        result = bench.report
        write_bench(result, folder)
        _say(f"report written to {folder}")
    if as_json:
        click.echo(to_json(result), nl=False)
    else:
        print_bench(result, Console())
    if result.interrupted:
        sys.exit(130)
    check_measured(result)
    if write_tuning:
        _write_tuning(spec, loaded, result, folder)


def _write_tuning(path: Path, spec: Spec, report: BenchReport, folder: Path) -> None:
    from trt_spec.util.files import write_text_atomic
    from trt_spec.verify.bench.tuning import edit_spec, render_patch, tuning_of

    values = tuning_of(report)
    text = path.read_text(encoding="utf-8")
    patch = render_patch(text, edit_spec(text, values), path.name)
    write_text_atomic(folder / TUNING_FILE, patch)
    listed = ", ".join(f"{key}: {value}" for key, value in values.items())
    _say(f"tuning of {spec.name}: {listed}; apply it with: patch {path} {folder / TUNING_FILE}")


def _compare(paths: tuple[Path, Path], as_json: bool) -> None:
    from rich.console import Console

    from trt_spec.errors import VerifyFailed
    from trt_spec.verify.bench.regression import compare_reports, load_report
    from trt_spec.verify.bench.render import print_table
    from trt_spec.verify.bench.tables import tabulate_comparison
    from trt_spec.verify.results import to_json

    comparison = compare_reports(*map(load_report, paths))
    for difference in comparison.differences:
        _say(f"conditions differ: {difference}")
    if comparison.unmatched:
        _say(f"{comparison.unmatched} settings are in one report alone")
    if as_json:
        click.echo(to_json(comparison), nl=False)
    else:
        print_table(tabulate_comparison(comparison), Console())
    if found := comparison.regressions:
        raise VerifyFailed(
            f"{len(found)} of {len(comparison.changes)} settings became slower or accept less; the first: "
            f"{found[0].setting.label}.",
            remedy="Measure B again to be sure: one comparison in twenty errs.",
        )


def _say(message: str) -> None:
    click.echo(message, err=True)
