"""`heshare import`: a trace of jobs as a task file."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from heshare.cli import options
from heshare.cli.json_output import print_json
from heshare.cli.results import results_folder
from heshare.devices.job_import import import_jobs
from heshare.devices.task_sizes import SIZED_ON
from heshare.shared import files
from heshare.shared.errors import require
from heshare.shared.inputs.foreign_table import LeftOutWarning
from heshare.world.recipes import RECIPES
from heshare.world.task_file import write_tasks


def import_trace(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The trace: a CSV file, or what its recipe says.")],
    recipe: Annotated[str | None, typer.Option(help=f"A public trace: {', '.join(RECIPES)}.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead: a column as KEY=NAME; keys are arrival, one of duration, end and iterations, and if any "
            "gpus, instances, start, workload, id."
        ),
    ] = None,
    unit: Annotated[
        list[str] | None, typer.Option(help="A unit that is not seconds, as KEY=UNIT: duration=ms (us, ns, min, h).")
    ] = None,
    gpu_unit: Annotated[float | None, typer.Option(help="What is one GPU in the column of GPUs: 100 for %.")] = None,
    zero: Annotated[str | None, typer.Option(help="What the moment 0 means: moment, unknown, judge.")] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad/--no-skip-bad", help="Leave bad rows out (default with a recipe).")
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="What the jobs run, drawn from all that are given.", autocompletion=options.model_names),
    ] = None,
    card: Annotated[str, typer.Option(help="The GPU whose time alone a duration is.")] = SIZED_ON,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="The task file to write, and beside it NAME.run.json, what made it.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Convert a trace of jobs to a task file, and print what was read: rows kept and left out, span and GPU hours."""
    written = None
    if out is not None and not files.is_stream(out):
        written = results_folder(context, out.parent, [out.name], record=f"{out.stem}.run.json")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)  # the line below says it
        tasks = import_jobs(
            path,
            _pairs("--column", column) if column else None,
            recipe=recipe,
            workloads=workload or "resnet50:8",
            card=card,
            gpu_unit=gpu_unit,
            units=_pairs("--unit", unit or []),
            zero=zero,
            seed=seed,
            skip_bad=skip_bad,
        )

    if written is not None and out is not None:
        written.write({out.name: partial(write_tasks, tasks=tasks)})
    elif out is not None:
        write_tasks(out, tasks)
    if json:
        print_json(tasks.report.to_json())
    else:
        typer.echo(tasks.report)


def _pairs(name: str, texts: list[str]) -> dict[str, str]:
    parts = [text.partition("=") for text in texts]
    wrong = next(("".join(each) for each in parts if not all(each)), None)
    require(name, repr(wrong), wrong is None, "KEY=NAME", "Write it like arrival=submit_time.")
    return {key: value for key, _, value in parts}
