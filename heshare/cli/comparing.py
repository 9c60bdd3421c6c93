"""`heshare compare`: policies side by side, on one task set or over a whole grid, on one machine or many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.cli.common import PAPER_CLUSTER, Json, Out, Profiles, Seed, Trace, emit

if TYPE_CHECKING:
    import pandas as pd

    from heshare.running.grid import Grid

_NUMBERS = ("energy_active_j", "energy_cluster_j", "avg_jct_s", "avg_waiting_s", "avg_execution_s", "makespan_s")
_AXES = ("cluster", "task_set", "tasks", "load", "arrivals", "interval_s", "predictor", "devices", "draw", "trace")

Texts = list[str] | None


def compare(
    policy: Annotated[
        Texts, typer.Option(help="A policy, such as random; may be repeated, like all that follow. All unless given.")
    ] = None,
    cluster: Annotated[Texts, typer.Option(help=f"GPUs; {PAPER_CLUSTER} unless given.")] = None,
    tasks: Annotated[Texts, typer.Option(help="How many tasks to draw (60), or a CSV file of tasks.")] = None,
    load: Annotated[Texts, typer.Option(help="Which models are drawn: low, medium, high or mixed.")] = None,
    arrivals: Annotated[Texts, typer.Option(help="at_once, poisson or front_loaded.")] = None,
    grid: Annotated[Path | None, typer.Option(help="A YAML file with the whole grid, in place of these.")] = None,
    trace: Trace = None,
    profiles: Profiles = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, each with its own task set.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
    engine: Annotated[
        str, typer.Option(help="joblib, dask (a cluster on this machine), or dask://HOST:PORT, a Dask scheduler.")
    ] = "joblib",
    cells: Annotated[
        Path | None, typer.Option(help="Keep finished runs in this folder, and go on from it (--grid: build/cells).")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Use the finished runs of the folder, or compute all anew.")] = True,
    out: Out = None,
    json: Json = False,
) -> None:
    """Put policies side by side on the same task sets; medians over the repetitions."""
    lists = {"policies": policy, "clusters": cluster, "tasks": tasks, "loads": load, "arrivals": arrivals}
    if trace is not None:
        lists["traces"] = [str(trace)]
    if profiles is not None:
        lists["predictors"] = [f"profile:{profiles}"]
    chosen = _grid({name: value for name, value in lists.items() if value}, grid, seed, seeds)
    folder = cells if cells is not None or grid is None else Path("build/cells")
    frame = _swept(chosen, folder, engine, jobs, not resume, not json)
    if out is not None:
        _write(frame, out)
    if json:
        emit(frame if grid is not None else frame.loc[:, "repetition":], True)
        return
    rows = medians(frame)
    emit(rows, False, repetitions=chosen.seeds, provenance="+".join(sorted(frame["provenance"].unique())))


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians over the repetitions of each policy in each world; the columns of a world only where worlds differ."""
    axes = [name for name in _AXES if len(frame[name].unique()) > 1]
    by = frame.groupby([*axes, "title"], sort=False, dropna=False)
    found = by[[*_NUMBERS, "predictor_calls", "planning_s"]].median().reset_index()
    return found.rename(columns={"title": "policy"})


def _swept(grid: Grid, folder: Path | None, engine: str, jobs: int, again: bool, progress: bool) -> pd.DataFrame:
    from heshare.running.sweep import sweep

    try:
        return sweep(grid, folder=folder, engine=engine, n_jobs=jobs, progress=progress, again=again)
    except KeyboardInterrupt:
        kept = "nothing was kept (see --cells)" if folder is None else f"finished runs are kept in {folder}"
        typer.echo(f"heshare: stopped; {kept}, and the same command goes on from there.", err=True)
        raise typer.Exit(130) from None


def _grid(given: dict[str, list[str]], file: Path | None, seed: int, seeds: int) -> Grid:
    from heshare.errors import InputError
    from heshare.policies.registry import policies
    from heshare.running.grid import grid, read_grid

    if file is not None:
        if given:
            raise InputError(
                column="--grid",
                found="a grid and " + ", ".join(given),
                expected="one of the two",
                action="Put everything into the grid.",
            )
        return read_grid(file)
    counted = [int(text) if text.lstrip("+-").isdigit() else text for text in given.get("tasks", ["60"])]
    if "traces" in given and not all(isinstance(one, int) for one in counted):
        raise InputError(
            column="--trace",
            found="a trace and a file of tasks",
            expected="one of the two",
            action="Give --tasks a number to draw tasks from the trace.",
        )
    values: dict[str, Any] = {"policies": list(policies()), **given, "tasks": counted, "seed": seed, "seeds": seeds}
    return grid({"clusters": [PAPER_CLUSTER], **values})


def _write(frame: pd.DataFrame, out: Path) -> None:
    """The runs and their medians, without wall time: the same bytes from every engine."""
    from heshare import files
    from heshare.reporting.tables import to_csv
    from heshare.running.compare import WALL_TIME

    files.write_text(out / "runs.csv", to_csv(frame.drop(columns=list(WALL_TIME))))
    files.write_text(out / "medians.csv", to_csv(medians(frame).drop(columns=list(WALL_TIME))))
