"""Sweeps: any grid of runs, on one machine or many; what is finished is kept, and a stopped sweep goes on.

A cell is one policy in one repetition of one world: a pure function of its description. Cells that share a world and
a repetition are computed together, so that sister policies plan their front once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.policies import registry
from heshare.running import engine as engines
from heshare.running import fingerprint, means
from heshare.running.bundles import run_cells
from heshare.running.cells import Description, Row
from heshare.running.grid import Grid
from heshare.running.repetition import repetition


def sweep(
    grid: Grid,
    *,
    folder: str | Path | None = None,
    engine: Any = engines.LOCAL,
    n_jobs: int = 1,
    progress: bool = False,
    again: bool = False,
) -> pd.DataFrame:
    """Run every cell of a grid.

    Args:
        grid: what to run.
        folder: where finished cells are kept and looked for; None keeps nothing.
        engine: `joblib`, `dask`, `dask://host:port`, a Dask client or cluster; see `heshare.running.engine.each`.
            The result does not depend on it.
        n_jobs: processes of `joblib` and `dask`.
        progress: show a progress bar over cells; those found in the folder are there from the start.
        again: compute every cell again, found or not.

    Returns:
        One row a cell, in the grid's order, policies innermost: the world's columns, then those of `compare`.

    Raises:
        InputError: a name that nobody knows, or no such engine.
    """
    labels: list[dict[str, Any]] = []
    bundles: list[list[dict[str, Any]]] = []
    names = [registry.canonical(policy) for policy in grid.policies]
    here = folder is None and n_jobs == 1 and engine == engines.LOCAL
    own = {policy: [] if here else _own_source(policy) for policy in names}
    for world, what in grid.worlds():
        for number in range(grid.seeds):
            cell = {**what, "seed": grid.seed, "repetition": number}
            bundles.append([{**cell, "policy": policy, "policy_source": own[policy]} for policy in names])
            labels += [world] * len(names)
    rows = run_cells(compute, bundles, folder=folder, engine=engine, n_jobs=n_jobs, progress=progress, again=again)
    return pd.DataFrame([{**label, **row} for label, row in zip(labels, rows, strict=True)])


def compute(cells: Sequence[Description]) -> Iterator[Row]:
    """The rows of cells that differ in their policies alone."""
    world = cells[0]
    for cell in cells:
        if cell["policy_source"]:
            import_module(cell["policy_source"][0])
    tasks = world["tasks"]
    names = [cell["policy"] for cell in cells]
    runs = repetition(
        np.random.SeedSequence(world["seed"], spawn_key=(world["repetition"],)),
        _drawer(tasks, world["drawn"]) if isinstance(tasks, int) else [means.as_task(task) for task in tasks],
        means.as_cluster(world["cluster"]),
        [partial(registry.make, name) for name in names],
        means.predictor(world["predictor"]),
        means.devices(world["devices"]),
        world["start_cost_s"],
    )
    for name, done in zip(names, runs, strict=True):
        row = {**done.summary(), "policy": name}
        yield {"repetition": world["repetition"], "policy": name, "title": registry.title(name), **row}


def _own_source(policy: str) -> list[str]:
    """The module that registers a policy of somebody else, and the hash of its source; empty for one of ours."""
    module = means.home(policy)
    digest = fingerprint.source(module) if module else ""
    return [module, digest] if digest else []


def _drawer(n: int, drawn: Any) -> Any:
    return partial(
        means.draw(drawn["draw"]),
        n,
        load=drawn["load"],
        arrivals=drawn["arrivals"],
        interval_s=drawn["interval_s"],
        batch_sizes=tuple(drawn["batch_sizes"]),
        trace=None if drawn["trace"] == means.SHIPPED else drawn["trace"],
    )
