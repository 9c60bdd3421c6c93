"""Sweeps: every policy of a grid in every repetition of every scenario, on one machine or many, by joblib.

A *scenario* is a cluster, tasks, a predictor and devices; a *cell* is one policy in one repetition of one scenario. The
policies of one repetition run one after the other, so that those that plan alike plan their front once; repetitions
run in parallel.

`joblib.parallel_config(backend="dask")` with a `distributed.Client` sends them to its workers: of a Slurm cluster
(`dask_jobqueue.SLURMCluster`), of Kubernetes, or of any machines that joined its scheduler.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from numbers import Real
from pathlib import Path

import pandas as pd
from joblib import Parallel, delayed

from heshare.devices.device import Device
from heshare.lab.limits import PowerLimit, within_limit
from heshare.lab.sweeps.cell_cache import CellCache, NoSourceError, Row, described, plain_row
from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.policies import registry
from heshare.policies.planning_cache import PlanningCache, SharesPlanning
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared import display, files
from heshare.shared.code_version import CHANGED, files_hash, package_version
from heshare.shared.disk_cache import NotCachedWarning
from heshare.shared.errors import InputError, require
from heshare.shared.interruption import InterruptedWithResult
from heshare.shared.progress import tqdm_bar
from heshare.world.cluster import Cluster
from heshare.world.task import Task

Metric = Callable[[Run], float]
"""A measure of a run."""
DrawTasks = Callable[..., Sequence[Task]]
"""Returns a task set; called as `draw(rng=...)`."""
MakeDevices = Callable[[Cluster], Sequence[Device] | None]
"""Returns the devices of a cluster; None for emulated ones."""
WALL_TIME = ("planning_s",)
"""Columns of a sweep that are wall time: they differ from run to run and are left out of recorded results."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A problem instance or a distribution of them: what the policies of a sweep run on.

    Attributes:
        labels: columns that name the scenario in the results.
        cluster: the GPUs.
        tasks: the task set of every repetition, or a function that draws one, called as `tasks(rng=...)`.
        make_predictor: returns the policies' predictor; called for each run that predicts.
        make_devices: returns the devices; None for emulated ones.
        start_cost_s: time that a task loads whenever it starts, s.
        power_limit: the power limit of every run, None for none.
        sources: files that the tasks or the predictor are read from; their content is part of the cell's key in the
            cache.
    """

    labels: Mapping[str, object]
    cluster: Cluster
    tasks: Sequence[Task] | DrawTasks
    make_predictor: Callable[[], Predictor]
    make_devices: MakeDevices | None = None
    start_cost_s: float = 0.0
    power_limit: PowerLimit | None = None
    sources: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """Every policy, by its name in the results, in every scenario, each repeated `seeds` times.

    Repetition i draws the same tasks in all scenarios that draw tasks in the same way; `seed` is that of all
    repetitions.
    """

    scenarios: Sequence[Scenario]
    policies: Mapping[str, Policy]
    seeds: int = 10
    seed: int = 0

    def __len__(self) -> int:
        return len(self.scenarios) * self.seeds * len(self.policies)


def sweep(
    grid: Grid,
    *,
    folder: str | Path | None = None,
    n_jobs: int | None = None,
    progress: bool | None = False,
    metrics: Mapping[str, Metric] | None = None,
) -> pd.DataFrame:
    """Return the results of every cell of a grid.

    Within a repetition all policies get the same tasks and the same random stream, those of `Repetition`.

    Args:
        grid: what to run.
        folder: cache of finished cells (`heshare.lab.sweeps.cell_cache`); None: no cache.
        n_jobs: processes, as in `joblib.Parallel`: None is one, or the value of `joblib.parallel_config`, with Dask
            all workers; -1 is all cores. The result does not depend on it.
        progress: show a progress bar over cells; cached ones are counted from the start. None: on a terminal, after two
            seconds.
        metrics: more columns by name, functions that return a number of a run.

    Returns:
        One row a cell, in the grid's order, policies innermost: the scenario's labels, then repetition, policy, title
        and those of `Run.summary`. The last one, planning_s, is wall time (`WALL_TIME` names such columns).

    Raises:
        InputError: `n_jobs` out of range, a folder that is not writable, or a metric that returns no number.
        InterruptedWithResult: a Ctrl-C after the first run, with the rows of the finished ones.
    """
    require(
        "grid", display.found(grid), isinstance(grid, Grid), "a Grid", "Make one by make_grid(...) or read_grid(...)."
    )
    good = n_jobs is None or (
        isinstance(n_jobs, int) and not isinstance(n_jobs, bool) and (n_jobs >= 1 or n_jobs == -1)
    )
    require("n_jobs", repr(n_jobs), good, "a whole number of at least 1, or -1 for all cores")
    measures = dict(metrics or {})

    if folder is not None:
        files.require_writable(folder, "cells")
    store = None if folder is None else CellCache(Path(folder))
    descriptions = {} if store is None else _descriptions(grid, measures)
    rows: dict[_Place, Row] = {}
    for cell, text in descriptions.items():
        row = None if store is None else store.read(text)
        if row is not None:
            rows[cell] = row

    # A run changes the given policies and predictors; copies leave them unchanged for later sweeps.
    to_run = deepcopy(grid) if descriptions else grid
    jobs = []
    for place, scenario in enumerate(to_run.scenarios):
        for number in range(grid.seeds):
            missing = {name: made for name, made in to_run.policies.items() if (place, number, name) not in rows}
            if missing:
                streams = Repetition(number, grid.seed)
                jobs.append(delayed(_run_job)(place, scenario, missing, streams, measures, package_version()))

    stopped = False
    with tqdm_bar(progress, total=len(grid), initial=len(rows), desc="cells", unit="cell") as bar:
        # One job at a time for each process: a sweep that is killed loses only the running jobs.
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        try:
            with closing(pool(jobs)) as results:
                for found, ended in results:
                    rows |= found
                    for cell in found:
                        # Here, since workers may have no access to the folder.
                        if store is not None and cell in descriptions:
                            store.write(descriptions[cell], found[cell])
                    bar.update(len(found))
                    if not ended:
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            stopped = True

    frame = _frame(grid, rows)
    if stopped:
        raise (
            InterruptedWithResult(f"{len(rows)} of {len(grid)} runs had finished", frame) if rows else KeyboardInterrupt
        )
    return frame


def repetition(scenario: Scenario, policies: Iterable[Policy], streams: Repetition) -> Iterator[Run]:
    """Yield the runs of policies, one after the other, on the same tasks.

    Policies that plan the same front plan it once, and each is charged for the planning. A predictor is made for each
    run that predicts, so that none counts the predictions of another.

    Yields:
        The run of each policy, as soon as it is over. A run does not depend on earlier policies.
    """
    tasks = scenario.tasks(rng=streams.rng(TASKS)) if callable(scenario.tasks) else scenario.tasks
    cache = PlanningCache()

    for policy in policies:
        if isinstance(policy, SharesPlanning):
            policy.share_planning(cache)
        yield run(
            tasks,
            scenario.cluster,
            within_limit(policy, scenario.power_limit),
            predictor=scenario.make_predictor(),
            rng=streams.rng(POLICY),
            devices=None if scenario.make_devices is None else scenario.make_devices(scenario.cluster),
            start_cost_s=scenario.start_cost_s,
        )


_Place = tuple[int, int, str]
"""A cell of a grid: the index of its scenario, its repetition, and the name of its policy."""


def _run_job(
    place: int,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    streams: Repetition,
    metrics: Mapping[str, Metric],
    version: str,
) -> tuple[dict[_Place, Row], bool]:
    """Return the rows of policies in one repetition, and whether it has ended; a Ctrl-C leaves the rows so far."""
    found = f"a worker with heshare {package_version()}"
    action = "Install the same version of heshare and of the lock on the workers."
    require("workers", found, package_version() == version, f"heshare {version} on every machine", action)

    rows: dict[_Place, Row] = {}
    try:
        for name, result in zip(policies, repetition(scenario, policies.values(), streams), strict=True):
            rows[place, streams.number, name] = _row(name, result, metrics)
    except KeyboardInterrupt:
        return rows, False
    return rows, True


def _row(name: str, result: Run, metrics: Mapping[str, Metric]) -> Row:
    row = {**result.summary(), "policy": name}
    planning_s = row.pop("planning_s")

    for column, metric in metrics.items():
        require("metrics", f"the name {column}", column not in row, "a name not in the results", "Choose another name.")
        value = metric(result)
        good = isinstance(value, Real) and not isinstance(value, bool)
        found = f"{type(value).__name__} from {column}"
        require("metrics", found, good, "a function that returns a number", "Correct it.")
        row[column] = float(value)

    return plain_row({**row, "planning_s": planning_s})


def _frame(grid: Grid, rows: Mapping[_Place, Row]) -> pd.DataFrame:
    titles = _titles(grid.policies)
    clusters = _cluster_labels(grid)
    listed = []
    for place, scenario in enumerate(grid.scenarios):
        for number in range(grid.seeds):
            for name, title in titles.items():
                if (place, number, name) in rows:
                    about = {**scenario.labels, "repetition": number, "policy": name, "title": title}
                    listed.append({**about, **rows[place, number, name], "cluster": clusters[place]})
    return pd.DataFrame(listed)


def _titles(policies: Mapping[str, Policy]) -> dict[str, str]:
    """Return the title of each policy by name; an object's has its parameters, unless another has the same title."""
    titles = {name: _title(name, policy) for name, policy in policies.items()}
    listed = list(titles.values())
    return {name: title if listed.count(title) == 1 else registry.title(name) for name, title in titles.items()}


def _title(name: str, policy: Policy) -> str:
    changed = {} if _is_description(name) else _changed_parameters(policy)
    if not changed:
        return registry.title(name)
    inside = ", ".join(f"{key} {registry.format_value(value)}" for key, value in changed.items())
    return f"{registry.title(policy.name)} ({inside})"


def _is_description(name: str) -> bool:
    try:
        registry.canonical(name)
    except InputError:
        return False
    return True


def _changed_parameters(policy: Policy) -> dict[str, registry.Value]:
    # Attributes with the name of a parameter of the class, where they differ from its default.
    defaults = registry.parameters_of(type(policy))
    values = {key: getattr(policy, key, default) for key, default in defaults.items() if key != "name"}
    plain = {key: value for key, value in values.items() if isinstance(value, bool | int | float | str)}
    return {key: value for key, value in plain.items() if value != defaults[key]}


def _cluster_labels(grid: Grid) -> list[str]:
    """Return the label of each scenario's cluster: its notation, with a number for another one of the same notation."""
    known: dict[str, list[Cluster]] = {}
    labels = []
    for scenario in grid.scenarios:
        same = known.setdefault(str(scenario.cluster), [])
        if scenario.cluster not in same:
            same.append(scenario.cluster)
        number = same.index(scenario.cluster) + 1
        labels.append(str(scenario.cluster) if number == 1 else f"{scenario.cluster}#{number}")
    return labels


def _descriptions(grid: Grid, metrics: Mapping[str, Metric]) -> dict[_Place, str]:
    """Return the descriptions of the cells that can be cached; a warning lists the others."""
    version = package_version()
    if version.endswith(CHANGED):
        warnings.warn("no run is cached: the code differs from its commit", NotCachedWarning, stacklevel=3)
        return {}

    descriptions: dict[_Place, str] = {}
    unknown: dict[str, None] = {}
    for (place, scenario), (name, policy) in product(enumerate(grid.scenarios), grid.policies.items()):
        try:
            text = f"{version}; {_described(scenario)}; {described((policy, metrics))}"
        except NoSourceError as error:
            unknown[str(error)] = None
            continue
        for number in range(grid.seeds):
            descriptions[place, number, name] = f"{text}; seed {grid.seed}, repetition {number}"

    if unknown:
        text = f"runs with {', '.join(unknown)} are not cached: there is no source file"
        warnings.warn(text, NotCachedWarning, stacklevel=3)
    return descriptions


def _described(scenario: Scenario) -> str:
    # Labels are names only; the objects that they name are described.
    parts = (
        scenario.cluster,
        scenario.tasks,
        scenario.make_predictor,
        scenario.make_devices,
        scenario.start_cost_s,
        scenario.power_limit,
    )
    return f"{described(parts)}, {files_hash(scenario.sources)}"
