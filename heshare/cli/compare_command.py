"""`heshare compare`: policies side by side, on one task set or over a whole grid, on one machine or many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.cli import options
from heshare.shared.errors import require
from heshare.shared.inputs.bounds import MOST_PROCESSES, MOST_TASKS, parse_whole

if TYPE_CHECKING:
    import pandas as pd

    from heshare.lab.sweeps.grid import Grid

_METRICS = ("energy_active_j", "energy_cluster_j", "avg_jct_s", "avg_waiting_s", "avg_execution_s", "makespan_s")
_AXES = ("cluster", "task_set", "tasks", "load", "arrivals", "interval_s", "predictor", "devices", "draw", "trace")

Texts = list[str] | None


def compare(
    policy: Annotated[
        Texts,
        typer.Option(
            help="A policy, such as random. Options up to --interval may be repeated. All policies if none.",
            autocompletion=options.policy_names,
        ),
    ] = None,
    cluster: Annotated[
        Texts, typer.Option(help=f"GPUs; {options.PAPER_CLUSTER} unless given.", autocompletion=options.clusters)
    ] = None,
    tasks: Annotated[Texts, typer.Option(help="How many tasks to draw (60), or a CSV file of tasks.")] = None,
    load: Annotated[Texts, typer.Option(help="Which models are drawn: low, medium, high or mixed.")] = None,
    arrivals: Annotated[Texts, typer.Option(help=options.ARRIVALS_HELP)] = None,
    interval: Annotated[list[float] | None, typer.Option(help=options.INTERVAL_HELP)] = None,
    grid: Annotated[
        Path | None, typer.Option(help="A YAML file with the whole grid, instead of these options.")
    ] = None,
    trace: options.Trace = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_TASKS, help="Repetitions, each with its own task set.")] = 10,
    power_limit: options.PowerLimit = None,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_PROCESSES, help="Processes on this machine.")] = 1,
    cells: Annotated[
        Path | None,
        typer.Option(
            help="Folder in which finished runs are stored and looked up (with --grid: build/cells).",
            callback=options.writable_folder,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Use the finished runs of the folder, or compute all again.")] = True,
    out: options.Out = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Compare policies on the same task sets; print medians over the repetitions."""
    from heshare.arguments import as_drawn

    lists: dict[str, Any] = {
        "policies": policy,
        "clusters": cluster,
        "tasks": tasks,
        "loads": load,
        "arrivals": arrivals,
        "intervals_s": interval,
    }
    drawn = [name for name in ("loads", "arrivals", "intervals_s") if lists[name] and grid is None]
    good = not drawn or any(map(options.is_count, tasks or ["60"]))
    require("--tasks", f"files of tasks and {', '.join(drawn)}", good, "a number of tasks to draw", "Leave them out.")
    if interval:
        for kind in arrivals or ["at_once"]:
            as_drawn(0, arrivals=kind, interval_s=interval[0])
    if trace is not None:
        options.check_trace(trace, all(map(options.is_count, tasks or ())))
        lists["traces"] = [str(trace)]
    if profiles is not None:
        lists["predictors"] = [f"profile:{profiles}"]
    lists["power_limit"] = power_limit
    chosen = _grid({name: value for name, value in lists.items() if value}, grid, seed, seeds)
    folder = cells if cells is not None or grid is None else Path("build/cells")
    with options.told("compare", quiet):
        frame, stopped = _sweep(chosen, folder, jobs, again=not resume, progress=options.shows_bar(quiet))
    if out is not None and not stopped:
        _write(frame, out)
    if json and len(frame):
        options.print_frame(frame if grid is not None else frame.loc[:, "repetition":], True)
    elif len(frame):
        provenance = "+".join(sorted(frame["provenance"].unique()))
        options.print_frame(medians(frame), False, repetitions=chosen.seeds, provenance=provenance)
    if stopped:
        typer.echo(f"heshare: {stopped}", err=True)
        raise typer.Exit(130)


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Return medians over the repetitions of each policy in each scenario.

    Columns of the scenario are included where scenarios differ in them.
    """
    axes = [name for name in _AXES if len(frame[name].unique()) > 1]
    groups = frame.groupby([*axes, "title"], sort=False, dropna=False)
    missed = [name for name in frame if str(name).startswith("deadline_")]
    values = groups[[*_METRICS, *missed, "predictor_calls", "planning_s"]].median().reset_index()
    return values.rename(columns={"title": "policy"})


def _grid(lists: dict[str, Any], file: Path | None, seed: int, seeds: int) -> Grid:
    from heshare.lab.sweeps.grid import parse_grid, read_grid
    from heshare.policies.registry import policies

    if file is not None:
        given = "a grid and " + ", ".join(lists)
        require("--grid", given, not lists, "one of the two", "Put everything into the grid.")
        return read_grid(file)
    tasks = [
        parse_whole(text, "n", least=1, most=MOST_TASKS) if options.is_count(text) else text
        for text in lists.get("tasks", ["60"])
    ]
    defaults: dict[str, Any] = {"clusters": [options.PAPER_CLUSTER], "policies": list(policies())}
    return parse_grid({**defaults, **lists, "tasks": tasks, "seed": seed, "seeds": seeds})


def _sweep(grid: Grid, folder: Path | None, jobs: int, *, again: bool, progress: bool) -> tuple[pd.DataFrame, str]:
    import pandas as pd

    from heshare.lab.sweeps.sweep import sweep

    try:
        return sweep(grid, folder=folder, n_jobs=jobs, progress=progress, again=again), ""
    except KeyboardInterrupt as stop:
        done, text = getattr(stop, "result", pd.DataFrame()), getattr(stop, "text", "no run had finished")
    if folder is None:
        return done, f"stopped; {text}, and nothing was stored (see --cells)."
    command = "the same command without --no-resume" if again else "the same command"
    return done, f"stopped; {text}. Finished runs are in {folder}, and {command} continues from there."


def _write(frame: pd.DataFrame, out: Path) -> None:
    """Write the runs and their medians without wall time, so that any number of processes gives the same bytes."""
    from heshare.lab.sweeps.sweep import WALL_TIME
    from heshare.paper.tables import to_csv
    from heshare.shared import files

    files.write_text(out / "runs.csv", to_csv(frame.drop(columns=list(WALL_TIME))))
    files.write_text(out / "medians.csv", to_csv(medians(frame).drop(columns=list(WALL_TIME))))
