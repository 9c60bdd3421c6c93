"""Sweeps: every policy of a grid in every repetition of every scenario, on one machine or many.

A cell is one policy in one repetition of one scenario: a pure function of its description. Cells of one scenario and
repetition are computed together, so that policies of one planner plan their front once. Finished cells are stored; a
sweep that was stopped continues with the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from heshare.devices.task_sizes import draw_for
from heshare.lab.limits import LimitSource, within_limit
from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.cell_store import CellStore, Description, Row, cell_key, plain_row
from heshare.lab.sweeps.grid import Grid
from heshare.lab.sweeps.parallel import calls_elsewhere, map_unordered
from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.lab.sweeps.resolve import DrawTasks, MakeDevices, MakePredictor
from heshare.policies import registry
from heshare.policies.cached_planner import Searches, share_planners
from heshare.policies.policy import Policy
from heshare.prediction.predictor import LazyPredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared.code_version import code_version
from heshare.shared.errors import require
from heshare.shared.progress import drawn
from heshare.shared.stopping import Stopped
from heshare.world.cluster import Cluster
from heshare.world.task import Task

_SEARCHES: Searches = {}
"""Searches of this process; cells of other scenarios, such as with other rivals or co-run times, may need the same."""
_MOST_SEARCHES = 200
Metric = Callable[[Run], float]
"""A measure of a run."""
WALL_TIME = ("planning_s",)
"""Columns of a sweep that are wall time: they differ from run to run and are left out of recorded results."""


def sweep(
    grid: Grid,
    *,
    folder: str | Path | None = None,
    n_jobs: int = 1,
    progress: bool | None = False,
    again: bool = False,
    metrics: Mapping[str, Metric] | None = None,
) -> pd.DataFrame:
    """Return the results of every cell of a grid.

    Within a repetition all policies get the same tasks and the same random stream, those of `Repetition`.

    Args:
        grid: what to run.
        folder: where finished cells are stored and looked up; None stores nothing.
        n_jobs: processes of this machine, unless joblib's backend is Dask's (`heshare.lab.sweeps.parallel`); the result
            depends on neither.
        progress: show a progress bar over cells; those of the folder are counted from the start. None: on a terminal,
            after two seconds.
        again: compute every cell again, even if it is in the folder.
        metrics: more columns by name, functions that return a number of a run; not with a folder.

    Returns:
        One row a cell, in the grid's order, policies innermost: the scenario's columns, then repetition, policy, title
        and those of `Run.summary`. The last one, planning_s, is wall time (`WALL_TIME` names such columns).

    Raises:
        InputError: an unknown name, or `n_jobs` out of range.
        Stopped: a Ctrl-C after the first run, with the rows of the finished ones.
    """
    good = isinstance(n_jobs, int) and not isinstance(n_jobs, bool) and (n_jobs >= 1 or n_jobs == -1)
    require("n_jobs", repr(n_jobs), good, "a whole number of at least 1, or -1 for all cores")
    labels: list[dict[str, Any]] = []
    bundles: list[list[dict[str, Any]]] = []
    names = [registry.canonical(policy) for policy in grid.policies]
    # Without a folder and other processes there is neither a key to compute nor a module to import: a policy may then
    # be registered by a notebook, which has no file.
    one_process = n_jobs == 1 and not calls_elsewhere()
    here = folder is None and one_process
    modules = {policy: [] if here else _policy_modules(policy, one_process) for policy in names}
    for scenario_labels, description in grid.scenarios():
        for number in range(grid.seeds):
            cell = {**description, "seed": grid.seed, "repetition": number}
            bundles.append(
                [{**cell, "policy": policy, "modules": [*cell["modules"], *modules[policy]]} for policy in names]
            )
            labels += [scenario_labels] * len(names)
    rows = _rows(bundles, folder, n_jobs, progress, again, metrics or {})
    done = pd.DataFrame([{**label, **row} for label, row in zip(labels, rows, strict=True) if row])
    if len(done) < len(rows):
        raise Stopped(f"{len(done)} of {len(rows)} runs had finished", done) if len(done) else KeyboardInterrupt
    return done


def _compute(cells: Sequence[Description], metrics: Mapping[str, Metric]) -> Iterator[Row]:
    scenario = cells[0]
    for cell in cells:
        for module in cell["modules"]:
            import_module(module)
    names = [cell["policy"] for cell in cells]
    cluster = resolve.cluster_from_json(scenario["cluster"])
    runs = repetition(
        Repetition(scenario["repetition"], scenario["seed"]),
        _tasks(scenario["tasks"], scenario["drawn"], cluster),
        cluster,
        [partial(registry.make, name) for name in names],
        resolve.predictor_maker(scenario["predictor"]),
        resolve.device_maker(scenario["devices"]),
        scenario["start_cost_s"],
        scenario["power_limit"],
    )
    for name, result in zip(names, runs, strict=True):
        row = {**result.summary(), "policy": name}
        planning_s = row.pop("planning_s")
        row |= {**_own_columns(metrics, result, row), "planning_s": planning_s}
        yield {"repetition": scenario["repetition"], "policy": name, "title": registry.title(name), **row}


def _own_columns(metrics: Mapping[str, Metric], result: Run, row: Mapping[str, object]) -> dict[str, float]:
    values = {}
    for name, metric in metrics.items():
        require("metrics", f"the name {name}", name not in row, "a name of its own", "Choose another name.")
        value = metric(result)
        good = isinstance(value, Real) and not isinstance(value, bool)
        require(
            "metrics", f"{type(value).__name__} from {name}", good, "a function that returns a number", "Correct it."
        )
        values[name] = float(value)
    return values


def repetition(
    streams: Repetition,
    tasks: Sequence[Task] | DrawTasks,
    cluster: Cluster,
    make_policies: Sequence[Callable[[], Policy]],
    make_predictor: MakePredictor,
    make_devices: MakeDevices | None = None,
    start_cost_s: float = 0.0,
    power_limit: LimitSource | None = None,
) -> Iterator[Run]:
    """Yield the runs of policies, one after the other, on the same tasks.

    Policies that plan the same front plan it once, and each is charged for the planning. `tasks` is a task set, or a
    function that draws one, called as `tasks(rng=...)`. A predictor is made for each run that predicts, so that none
    uses those of another; devices are emulated ones by default.

    Yields:
        The run of each policy, as soon as it is over. A run does not depend on the policies that run before it.
    """
    drawn = tasks(rng=streams.rng(TASKS)) if callable(tasks) else tasks
    policies = [make_policy() for make_policy in make_policies]
    if len(_SEARCHES) >= _MOST_SEARCHES:
        _SEARCHES.clear()
    share_planners(policies, _SEARCHES)
    for policy in policies:
        yield run(
            drawn,
            cluster,
            within_limit(policy, power_limit),
            predictor=LazyPredictor(make_predictor),
            rng=streams.rng(POLICY),
            devices=None if make_devices is None else make_devices(cluster),
            start_cost_s=start_cost_s,
        )


def _rows(
    bundles: Sequence[Sequence[Description]],
    folder: str | Path | None,
    n_jobs: int,
    progress: bool | None,
    again: bool,
    metrics: Mapping[str, Metric],
) -> list[Row]:
    """Return the rows of cells in the order given, empty ones from a Ctrl-C on; computed ones are as if read from JSON.

    One process computes the cells of a bundle. The key of a cell depends on the import closure of its modules.
    """
    require("metrics", "metrics with a folder", not (metrics and folder), "one of the two", "Leave out the folder.")
    store = None if folder is None else CellStore(Path(folder).resolve())
    elsewhere = calls_elsewhere()
    # Rows that are neither kept nor computed elsewhere need no version: reading the closure takes a second.
    needed = store is not None or elsewhere
    names = [[cell_key(cell, _version(cell) if needed else "") for cell in bundle] for bundle in bundles]
    known = {} if store is None or again else store.read_all(chain.from_iterable(names))

    jobs: list[_Job] = []
    planned: dict[str, Description] = {}
    for bundle, bundle_names in zip(bundles, names, strict=True):
        named = zip(bundle_names, bundle, strict=True)
        missing = {name: cell for name, cell in named if name not in known and name not in planned}
        if missing:
            planned |= missing
            # Other machines may have no access to the folder: this process stores what they compute.
            own_store, version = (None, _version(*missing.values())) if elsewhere else (store, "")
            jobs.append(_Job(missing, own_store, version, metrics))

    total = len(known) + len(planned)
    with drawn(progress, total=total, initial=len(known), desc="cells", unit="cell") as bar:
        try:
            for rows in map_unordered(_run_job, jobs, n_jobs=n_jobs):
                if store is not None and elsewhere:
                    for name, row in rows.items():
                        store.write(name, planned[name], row)
                known |= rows
                bar.update(len(rows))
        except KeyboardInterrupt as stop:
            known |= getattr(stop, "result", {})
    return [known.get(name, {}) for bundle in names for name in bundle]


@dataclass(frozen=True, slots=True)
class _Job:
    """The part of a sweep that one process computes: cells by name.

    `store` is where to store them, None if the caller does; `version` is that of the caller's code that computes them,
    for workers of other machines.
    """

    cells: dict[str, Description]
    store: CellStore | None
    version: str
    metrics: Mapping[str, Metric]


def _run_job(job: _Job) -> dict[str, Row]:
    """Compute the cells of a job; store each at once. `Stopped` by a Ctrl-C has the rows so far."""
    same = not job.version or _version(*job.cells.values()) == job.version
    found = "a worker with other code, data or libraries than here"
    action = "Install the same version of heshare and of the lock on the workers."
    require("workers", found, same, "the same on every machine", action)
    rows: dict[str, Row] = {}
    try:
        for (name, cell), row in zip(job.cells.items(), _compute(list(job.cells.values()), job.metrics), strict=True):
            rows[name] = plain_row(row)
            if job.store is not None:
                job.store.write(name, cell, rows[name])
    except KeyboardInterrupt:
        raise Stopped(f"{len(rows)} runs had finished", rows) from None
    return rows


def _version(*cells: Description) -> str:
    """Return the version of the code that computes cells; they name the modules that it imports by name."""
    return code_version(__name__, *sorted({module for cell in cells for module in cell["modules"]}))


def _policy_modules(policy: str, one_process: bool) -> list[str]:
    modules = resolve.policy_modules(policy)
    found, expected = f"{policy}, which a notebook or script registers", "policies that other processes can import"
    action = "Put it into a .py file and import that, or run it in one process."
    require("policies", found, "__main__" not in modules or one_process, expected, action)
    return modules


def _tasks(tasks: int | list[Any], drawn: Any, cluster: Cluster) -> DrawTasks | list[Task]:
    if not isinstance(tasks, int):
        return msgspec.convert(tasks, list[Task])
    return partial(
        draw_for,
        resolve.task_drawer(drawn["draw"]),
        tasks,
        cluster,
        load=drawn["load"],
        arrivals=drawn["arrivals"],
        interval_s=drawn["interval_s"],
        batch_sizes=tuple(drawn["batch_sizes"]),
        trace=None if drawn["trace"] == resolve.SHIPPED else drawn["trace"],
    )
