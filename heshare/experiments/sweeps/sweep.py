"""Sweeps: every policy of a grid in every repetition of every scenario, on one machine or many.

A cell is one policy in one repetition of one scenario: a pure function of its description. Cells of one scenario and
repetition are computed together, so that policies of one planner plan their front once. Finished cells are stored; a
sweep that was stopped continues with the others.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.experiments.sweeps import hashes, resolve
from heshare.experiments.sweeps.cell_store import Description, Row
from heshare.experiments.sweeps.engine import LOCAL
from heshare.experiments.sweeps.grid import Grid
from heshare.experiments.sweeps.repetition import DrawTasks, repetition
from heshare.experiments.sweeps.run_cells import run_cells
from heshare.plugins import registry
from heshare.world.task import Task

WALL_TIME = ("planning_s",)
"""Columns of a sweep that are wall time: they differ from run to run and are left out of recorded results."""


def sweep(
    grid: Grid,
    *,
    folder: str | Path | None = None,
    engine: Any = LOCAL,
    n_jobs: int = 1,
    progress: bool = False,
    again: bool = False,
) -> pd.DataFrame:
    """Run every cell of a grid.

    Within a repetition all policies get the same tasks and the same random stream. Repetition i is the i-th child of
    `SeedSequence(grid.seed)`.

    Args:
        grid: what to run.
        folder: where finished cells are stored and looked up; None stores nothing.
        engine: `joblib`, `dask`, `dask://host:port`, a Dask client or cluster; see
            `heshare.experiments.sweeps.engine.map_unordered`. The result does not depend on it.
        n_jobs: processes of `joblib` and `dask`; the result does not depend on it.
        progress: show a progress bar over cells; those of the folder are counted from the start.
        again: compute every cell again, even if it is in the folder.

    Returns:
        One row a cell, in the grid's order, policies innermost: the scenario's columns, then repetition, policy, title
        and those of `Run.summary`. The last one, planning_s, is wall time (`WALL_TIME` names such columns).

    Raises:
        InputError: an unknown name, or no such engine.
    """
    labels: list[dict[str, Any]] = []
    bundles: list[list[dict[str, Any]]] = []
    names = [registry.canonical(policy) for policy in grid.policies]
    # Without a folder and other processes there is neither a key to compute nor a module to import: a policy may then
    # be registered by a notebook, which has no file.
    here = folder is None and n_jobs == 1 and engine == LOCAL
    sources = {policy: [] if here else _policy_source(policy) for policy in names}
    for scenario_labels, description in grid.scenarios():
        for number in range(grid.seeds):
            cell = {**description, "seed": grid.seed, "repetition": number}
            bundles.append([{**cell, "policy": policy, "policy_source": sources[policy]} for policy in names])
            labels += [scenario_labels] * len(names)
    rows = run_cells(compute, bundles, folder=folder, engine=engine, n_jobs=n_jobs, progress=progress, again=again)
    return pd.DataFrame([{**label, **row} for label, row in zip(labels, rows, strict=True)])


def compute(cells: Sequence[Description]) -> Iterator[Row]:
    """Yield the rows of cells that differ in their policies alone."""
    scenario = cells[0]
    for cell in cells:
        if cell["policy_source"]:
            import_module(cell["policy_source"][0])
    names = [cell["policy"] for cell in cells]
    runs = repetition(
        np.random.SeedSequence(scenario["seed"], spawn_key=(scenario["repetition"],)),
        _tasks(scenario["tasks"], scenario["drawn"]),
        resolve.cluster_from_json(scenario["cluster"]),
        [partial(registry.make, name) for name in names],
        resolve.predictor_maker(scenario["predictor"]),
        resolve.device_maker(scenario["devices"]),
        scenario["start_cost_s"],
    )
    for name, run in zip(names, runs, strict=True):
        row = {**run.summary(), "policy": name}
        yield {"repetition": scenario["repetition"], "policy": name, "title": registry.title(name), **row}


def _policy_source(policy: str) -> list[str]:
    """Return the module that registers a policy and the hash of its source; empty for a policy of this package."""
    module = resolve.policy_module(policy)
    digest = hashes.module_hash(module) if module else ""
    return [module, digest] if digest else []


def _tasks(tasks: int | list[Any], drawn: Any) -> DrawTasks | list[Task]:
    """Return the given tasks, or the function that draws so many."""
    if not isinstance(tasks, int):
        return [resolve.task_from_json(task) for task in tasks]
    return partial(
        resolve.task_drawer(drawn["draw"]),
        tasks,
        load=drawn["load"],
        arrivals=drawn["arrivals"],
        interval_s=drawn["interval_s"],
        batch_sizes=tuple(drawn["batch_sizes"]),
        trace=None if drawn["trace"] == resolve.SHIPPED else drawn["trace"],
    )
