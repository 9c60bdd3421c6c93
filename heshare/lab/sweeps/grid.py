"""Grid of a sweep: every combination of policies, clusters, task sets, predictors, devices and repetitions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, get_type_hints

from heshare.lab.limits import PowerLimit, check_cluster
from heshare.lab.sweeps import resolve
from heshare.policies import registry
from heshare.prediction.load import TREES
from heshare.shared.errors import InputError, require, unknown
from heshare.shared.inputs.bounds import MOST_CELLS
from heshare.shared.yaml_nodes import read_values
from heshare.world.arrivals import ARRIVALS, INTERVAL_S, Arrivals, check_arrivals, split_load
from heshare.world.catalogue import check_card
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_file import read_tasks
from heshare.world.task_set import LOADS

GridTasks = int | str | tuple[Task, ...]
"""How many tasks to draw, a CSV file of tasks, or the tasks."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of its lists, each repeated `seeds` times; repetition i draws the same tasks in all of them.

    A *scenario* is a combination of all but policies and repetitions.

    Attributes:
        policies: names of the registry, with parameters in parentheses: `random`, `morak(cap=0.7,k=3)`.
        clusters: such as `4xT4,2xV100,2xA100`, or clusters, whose GPUs may differ from the
            catalogue in memory, clocks and TDP.
        tasks: how many to draw, or a CSV file of tasks, or the tasks themselves.
        loads: which models are drawn: `low`, `medium`, `high`, `mixed`.
        arrivals: `at_once`, `exponential`, `miso`, `front_loaded`, a file, or seconds, see
            `heshare.world.arrivals`; drawn ones and a file also at an offered load of the cluster: `exponential@0.8`.
        intervals_s: mean time between two arrivals, s.
        batch_sizes: inference batch sizes that tasks are drawn with; one list for the whole grid.
        predictors: the policies' predictors: `trees` or `random-forest` (see `load_predictor`), `truth` (the device
            model), `profile:PATH` (trained on that profile), or `module:function` that returns a predictor.
        devices: the devices of a cluster: `emulated`, or `module:function` that makes the devices of a cluster.
        draws: how tasks are drawn: `recipe`, or `module:function` with the arguments of
            `heshare.devices.task_sizes.draw`.
        traces: `shipped` percentiles, or a trace file to take durations from.
        start_costs_s: time that a task loads whenever it starts, s.
        seeds: number of repetitions.
        seed: the seed of all repetitions.
        power_limit: the power limit of every run, None for none. A YAML file writes what `PowerLimit.parse` reads:
            watts, or a CSV file with the columns time_s and limit_w.

    Raises:
        InputError: an empty list, a value of a wrong type, or an unknown name.
    """

    policies: tuple[str, ...]
    clusters: tuple[str | Cluster, ...] = ("4xT4,2xV100,2xA100",)
    tasks: tuple[GridTasks, ...] = (60,)
    loads: tuple[str, ...] = ("mixed",)
    arrivals: tuple[Arrivals, ...] = ("at_once",)
    intervals_s: tuple[float, ...] = (INTERVAL_S,)
    batch_sizes: tuple[int, ...] = (4, 8)
    predictors: tuple[str, ...] = (TREES,)
    devices: tuple[str, ...] = (resolve.EMULATED,)
    draws: tuple[str, ...] = (resolve.RECIPE,)
    traces: tuple[str, ...] = (resolve.SHIPPED,)
    start_costs_s: tuple[float, ...] = (0.0,)
    seeds: int = 10
    seed: int = 0
    power_limit: PowerLimit | None = None

    def __post_init__(self) -> None:
        for name in LISTS:
            values = getattr(self, name)
            _check(name, values, isinstance(values, tuple) and len(values) > 0, "a list with at least one value")
            for value in values:
                _check(name, value, *_rule(name, value))
        for name, least in (("seeds", 1), ("seed", 0)):
            value = getattr(self, name)
            _check(name, value, _is_int(value) and value >= least, f"a whole number of at least {least}")

        cells = f"{len(self)} cells"
        require("seeds", cells, len(self) <= MOST_CELLS, f"at most {MOST_CELLS} cells", "Split the grid.")

        # An unknown name is an error now, not when its cell is computed.
        limit = self.power_limit
        _check("power_limit", limit, limit is None or isinstance(limit, PowerLimit), "a PowerLimit, or None")
        for cluster in self.clusters:
            parsed = Cluster.parse(cluster)
            if limit is not None:
                check_cluster(parsed, limit)
            for card in parsed.kinds if resolve.EMULATED in self.devices else ():
                check_card(card)
        for make, names in (
            (registry.make, self.policies),
            (resolve.predictor_maker, self.predictors),
            (resolve.device_maker, self.devices),
            (resolve.task_drawer, self.draws),
        ):
            for name in names:
                make(name)

    def __len__(self) -> int:
        return self.seeds * prod(len(getattr(self, name)) for name in LISTS if name != "batch_sizes")

    def scenarios(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield, for each scenario, its labels (columns of a result) and its description (part of a cell's)."""
        task_sets = [_task_set(source) for source in self.tasks]
        axes = [getattr(self, name) for name in _LABELS]
        for cluster, (label, tasks), *rest in product(self.clusters, task_sets, *axes):
            labels = {"task_set": label, **dict(zip(_LABELS.values(), rest, strict=True))}
            labels |= {name: float(labels[name]) for name in ("interval_s", "start_cost_s")}
            drawn = {name: labels[name] for name in ("load", "arrivals", "interval_s", "draw", "trace")}
            kind = check_arrivals(split_load(drawn["arrivals"])[0])
            if not isinstance(kind, str):
                drawn["arrivals"], labels["arrivals"] = list(kind), "given"
            recorded = [kind] if isinstance(kind, str) and kind not in ARRIVALS else []
            description = {
                "cluster": resolve.cluster_to_json(Cluster.parse(cluster)),
                "tasks": tasks,
                # A task set that is given does not depend on how others would be drawn.
                "drawn": {**drawn, "batch_sizes": list(self.batch_sizes)} if isinstance(tasks, int) else None,
                **{name: labels[name] for name in ("predictor", "devices", "start_cost_s")},
                "sources": resolve.source_hashes(
                    [*[labels[name] for name in ("predictor", "devices", "draw", "trace")], *recorded]
                ),
                "modules": resolve.modules_of(labels[name] for name in ("predictor", "devices", "draw")),
                "power_limit": None if self.power_limit is None else self.power_limit.to_json(),
            }
            yield labels, description


_LABELS = {
    "loads": "load",
    "arrivals": "arrivals",
    "intervals_s": "interval_s",
    "predictors": "predictor",
    "devices": "devices",
    "draws": "draw",
    "traces": "trace",
    "start_costs_s": "start_cost_s",
}
"""Columns of a result by attribute."""
LISTS = ("policies", "clusters", "tasks", *_LABELS, "batch_sizes")
"""The attributes of a grid that are lists."""


def parse_grid(values: Mapping[str, Any], *, file: str | Path | None = None) -> Grid:
    """Return a grid from plain values, where a single value means a list of one.

    `values` are by attribute of `Grid`; `policies` is required. `file` is where they come from, for messages.

    Raises:
        InputError: an unknown or missing name, or a bad value.
    """
    known = [field.name for field in fields(Grid)]
    for name in values:
        if name not in known:
            raise unknown(name, known, "Remove it.", file=file, column="grid")
    try:
        given = {name: _listed(name, value) for name, value in values.items()}
        if given.get("power_limit") is not None:
            given["power_limit"] = PowerLimit.parse(given["power_limit"])
        return Grid(**{"policies": (), **given})
    except InputError as error:
        if file is None or error.file is not None:
            raise
        raise InputError(error.found, error.expected, error.action, file=file, column=error.column) from None


def read_grid(path: str | Path) -> Grid:
    """Return the grid of a YAML file: attributes of `Grid`, a value or a list each.

    Raises:
        InputError: no such file, no YAML, or a bad grid.
    """
    values = read_values(Path(path), "a grid in YAML", "Correct the file.")
    expected = "lines such as `policies: [random, sched-only]`"
    action = "Name the policies, and what differs from the defaults."
    require(None, f"a {type(values).__name__}", isinstance(values, dict), expected, action, file=path)
    return parse_grid(values, file=path)


def _listed(name: str, value: Any) -> Any:
    if name not in LISTS:
        return value
    if name == "tasks" and isinstance(value, list | tuple) and value and all(isinstance(task, Task) for task in value):
        return (tuple(value),)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _rule(name: str, value: Any) -> tuple[bool, str]:
    """Return whether an attribute accepts a value of its list, and what it accepts."""
    if name == "tasks":
        given = isinstance(value, tuple) and len(value) > 0 and all(isinstance(task, Task) for task in value)
        return given or isinstance(value, str) or (_is_int(value) and value >= 1), "a number of tasks, or a CSV file"
    if name == "batch_sizes":
        return _is_int(value) and value >= 1, "whole numbers of at least 1"
    if get_type_hints(Grid)[name] == tuple[float, ...]:
        least = 0 if name == "start_costs_s" else 1e-9
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and least <= value < float("inf"), "seconds"
    if name == "clusters":
        return isinstance(value, str | Cluster), "text such as 4xT4,2xV100,2xA100"
    if name == "loads":
        return value in LOADS, "one of " + ", ".join(LOADS)
    if name == "arrivals":
        check_arrivals(split_load(value)[0])
        return True, ""
    return isinstance(value, str) and bool(value), "text"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(column: str, value: Any, good: bool, expected: str) -> None:
    require(column, repr(value), good, expected, "Correct the grid.")


def _task_set(source: GridTasks) -> tuple[str, int | list[dict[str, Any]]]:
    """Return a label, and the number of tasks to draw or the tasks as JSON values."""
    if isinstance(source, int):
        return "drawn", source
    tasks: Sequence[Task] = read_tasks(source) if isinstance(source, str) else source
    return source if isinstance(source, str) else "given", [resolve.task_to_json(task) for task in tasks]
