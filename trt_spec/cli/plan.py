"""``trtspec plan``: what a spec will need and bring, before anything is downloaded or built."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("plan")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder of the later build.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON document.")
@click.option("--explain", "field", metavar="FIELD", help="Only say where a derived value comes from.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write predicted speed-ups, .png or .svg."
)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="report.json whose acceptance to use.")
@click.option("--accept-derived", is_flag=True, help="Allow TensorRT-LLM releases between the recorded ones.")
@click.option("--online", is_flag=True, help="Ask the hub also for models whose facts are built in.")
def command(
    spec: Path,
    workspace: Path | None,
    as_json: bool,
    field: str | None,
    plot: Path | None,
    report: Path | None,
    online: bool,
    accept_derived: bool,
) -> None:
    """Check the pair of SPEC, its shapes, memory and placement; predict its speed; print every step.

    Reads configuration files and tensor headers alone, needs no GPU and builds nothing. Exits with 2 when the plan
    cannot work.
    """
    from trt_spec.build.source.medusa_heads import load_head_files
    from trt_spec.build.source.model_files import load_model_files
    from trt_spec.errors import SpecError
    from trt_spec.plan.explain import explain
    from trt_spec.plan.known_models import is_known_model
    from trt_spec.plan.plan import PlanOptions, make_plan
    from trt_spec.plan.render import render_json
    from trt_spec.plan.workspace import resolve_workspace
    from trt_spec.spec.load import load_spec
    from trt_spec.util.cache import resolve_cache_dir

    loaded = load_spec(spec)
    models = loaded.models()
    read = {  # one checkpoint may serve both roles
        source: load_model_files(
            source[0],
            revision=source[1],
            cache_dir=resolve_cache_dir(),
            offline=not online and is_known_model(source[0]),
        )
        for source in dict.fromkeys((model.model, model.revision) for model in models.values())
    }
    files = {role: read[model.model, model.revision] for role, model in models.items()}
    heads = load_head_files(loaded.speculation.heads, cache_dir=resolve_cache_dir())
    place = resolve_workspace(loaded.name, workspace)
    plan = make_plan(loaded, files, PlanOptions(place, _read_alpha(report), accept_derived, heads))
    if field is not None:
        told = explain(plan, field)
        click.echo(f"{told.field} = {told.value}\n  {told.formula}\n  {told.source}")
    elif as_json:
        click.echo(render_json(plan), nl=False)
    else:
        from rich.console import Console

        from trt_spec.cli.plan_tables import print_plan

        print_plan(plan, Console())
    if plot is not None and plan.engine is not None and plan.engine.speed is not None:
        from trt_spec.cli.plan_plot import write_plot

        write_plot(plan.engine.speed, loaded.name, plot)
    if plan.refused and field is None:
        first = plan.findings[0]
        raise SpecError(f"The plan cannot work: {first.message}", remedy=first.remedy)


def _read_alpha(report: Path | None) -> float | None:
    """acceptance.alpha of a report that `trtspec verify` wrote."""
    if report is None:
        return None
    from trt_spec.errors import SpecError

    try:
        alpha = json.loads(report.read_text(encoding="utf-8"))["acceptance"]["alpha"]
    except (OSError, ValueError, KeyError, TypeError):
        alpha = None
    if not isinstance(alpha, float | int):
        raise SpecError(
            f"{report} has no acceptance.alpha.", remedy="Give the report.json that `trtspec verify` wrote."
        )
    return float(alpha)
