"""`heshare compare`: comparison of policies on the same task sets, or over a grid of scenarios."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from heshare import api, arguments
from heshare.cli import options
from heshare.cli.results import results_folder
from heshare.lab.sweeps.grid import AXES, grid_values, read_grid
from heshare.lab.sweeps.sweep import WALL_TIME, Grid, sweep
from heshare.paper.provenance.results_folder import ResultsFolder
from heshare.paper.tables import to_csv
from heshare.policies import registry
from heshare.shared import files
from heshare.shared.errors import require
from heshare.shared.inputs.bounds import MOST_PROCESSES, MOST_TASKS, parse_whole
from heshare.shared.interruption import return_partial_result

_METRICS = ("energy_active_j", "energy_cluster_j", "avg_jct_s", "avg_waiting_s", "avg_execution_s", "makespan_s")
_WITH_A_GRID = {"context", "grid", "jobs", "cells", "out", "quiet", "json"}
"""Options that may be used together with `--grid`, which has the others."""
_FILES = ("runs.csv", "medians.csv")
CELLS_FOLDER = Path("build/cells")
"""Default folder of the finished runs of a grid."""


def compare(
    context: typer.Context,
    policy: options.Policies = None,
    cluster: options.ClusterText = options.PAPER_CLUSTER,
    tasks: options.TasksText = "60",
    load: options.Load = "mixed",
    arrivals: options.Arrivals = "at_once",
    trace: options.Trace = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_TASKS, help="Repetitions, each with its own task set.")] = 10,
    power_limit: options.PowerLimit = None,
    grid: Annotated[
        Path | None, typer.Option(help="A YAML file with a whole grid, instead of the options above.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_PROCESSES, help="Processes on this machine.")] = 1,
    cells: Annotated[
        Path | None,
        typer.Option(
            help=f"Folder in which finished runs are cached and looked up (with --grid: {CELLS_FOLDER}).",
            callback=options.writable_folder,
        ),
    ] = None,
    out: options.Out = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Compare policies on the same task sets; print medians over the repetitions."""
    shown = options.shows_bar(quiet)
    with options.working_line("compare", quiet), options.only_json(json), options.interruption() as stopped:
        if grid is not None:
            others = sorted(options.given(context) - _WITH_A_GRID)
            action = "Put everything into the grid."
            require("--grid", f"a grid and {', '.join(others)}", not others, "one of the two", action)
            of_file = read_grid(grid)
            folder = results_folder(
                context,
                out,
                _FILES,
                inputs=_read_by(of_file),
                objects=of_file.policies.values(),
                parameters={**grid_values(grid), "seeds": of_file.seeds, "seed": of_file.seed},
            )
            cells = CELLS_FOLDER if cells is None else cells
            frame = return_partial_result(sweep)(of_file, folder=cells, n_jobs=jobs, progress=shown)
        else:
            counted = options.is_count(tasks)
            made = [registry.make(str(each)) for each in arguments.as_policies(policy)]
            folder = results_folder(context, out, _FILES, objects=made)
            frame = api.compare(
                parse_whole(tasks, "n", least=1, most=MOST_TASKS) if counted else options.read_tasks(tasks),
                cluster,
                policy,
                seed=seed,
                seeds=seeds,
                load=load,
                arrivals=arrivals,
                trace=trace,
                predictor=None if profiles is None else options.predictor_factory(profiles)(),
                n_jobs=jobs,
                progress=shown,
                cells=cells,
                power_limit=power_limit,
            )

    if folder is not None and not stopped:
        _write(frame, folder)
    if json:
        options.print_frame(frame, True)
    else:
        _print_medians(frame, bool(stopped))
    if stopped:
        done = stopped[0].removeprefix("interrupted: ")
        more = "No run was cached (see --cells)"
        if cells is not None:
            more = f"Finished runs are in {cells}; the same command continues from there"
        raise KeyboardInterrupt(f"{done}. {more}.")


def _print_medians(frame: pd.DataFrame, stopped: bool) -> None:
    """Print medians; after a Ctrl-C over the repetitions that every policy of a scenario has, with their number."""
    about = {"repetitions": frame["repetition"].nunique(), "provenance": "+".join(sorted(frame["provenance"].unique()))}
    if not stopped:
        options.print_frame(medians(frame), False, about)
        return

    common = common_repetitions(frame)
    table = medians(common)
    sizes = common.groupby([*_axes(common), "title"], sort=False, dropna=False).size()
    table.insert(len(_axes(common)) + 1, "repetitions", sizes.to_numpy())
    words = f"{'none' if common.empty else 'those'} that every policy has finished"
    options.print_frame(table, False, {**about, "repetitions": words})


def common_repetitions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the repetitions of each scenario that every policy has finished."""
    known = [name for name in (*AXES, "repetition") if name in frame]
    counts = frame.groupby(known, dropna=False)["policy"].transform("nunique")
    return frame[counts == len(frame["policy"].unique())]


def _axes(frame: pd.DataFrame) -> list[str]:
    return [name for name in AXES if name in frame and len(frame[name].unique()) > 1]


def _read_by(grid: Grid) -> set[Path]:
    """Return the files that a grid reads."""
    task_files = {Path(str(scenario.labels["task_set"])) for scenario in grid.scenarios}
    sources = {path for scenario in grid.scenarios for path in scenario.sources}
    return sources | {path for path in task_files if path.is_file()}


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Return medians over the repetitions of each policy in each scenario.

    Columns of the scenario are included if scenarios differ in them.
    """
    groups = frame.groupby([*_axes(frame), "title"], sort=False, dropna=False)
    missed = [name for name in frame if str(name).startswith("deadline_")]
    values = groups[[*_METRICS, *missed, "predictor_calls", "planning_s"]].median().reset_index()
    return values.rename(columns={"title": "policy"})


def _write(frame: pd.DataFrame, folder: ResultsFolder) -> None:
    """Write the runs and their medians without wall time, the same bytes for any number of processes."""
    tables = [table.drop(columns=list(WALL_TIME)) for table in (frame, medians(frame))]
    texts = dict(zip(_FILES, map(to_csv, tables), strict=True))
    folder.write({name: partial(files.write_text, text=text) for name, text in texts.items()})
