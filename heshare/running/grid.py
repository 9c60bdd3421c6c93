"""What a sweep runs: policies x clusters x tasks x loads x arrivals x beliefs x devices x repetitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from heshare.errors import InputError
from heshare.policies import registry
from heshare.running import means
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.taskfile import read_tasks
from heshare.world.taskset import ARRIVALS, LOADS

TaskSource = int | str | tuple[Task, ...]
"""How many tasks to draw, a CSV file of tasks, or the tasks."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of its lists, each repeated `seeds` times; repetition i draws alike in all of them.

    Attributes:
        policies: of the registry, with parameters where they have some: `random`, `morak(cap=0.7,k=3)`.
        clusters: such as `4xT4,2xV100,2xA100`, or clusters, whose GPUs need not be those of the catalogue.
        tasks: how many to draw, or a CSV file of tasks, or the tasks themselves.
        loads: which models are drawn: `low`, `medium`, `high`, `mixed`.
        arrivals: `at_once`, `poisson`, `front_loaded`.
        intervals_s: mean time between two arrivals, s.
        batch_sizes: inference batch sizes that tasks are drawn with; one list for the whole grid.
        predictors: what policies believe: `paper`, `paper-kept` (the same answers, kept from run to run, so that
            planning takes the time of a scheduler that has met its workloads), `physics`, `truth` (the device model),
            `profile:PATH` (the paper's forest trained on that profile), or `module:function` that returns a predictor.
        devices: what happens: `emulated`, or `module:function` that makes the devices of a cluster.
        draws: how tasks are drawn: `recipe`, or `module:function` with the arguments of `heshare.running.draw.draw`.
        traces: `shipped` percentiles, or a trace file to take durations from.
        start_costs_s: time that a task loads whenever it starts, s.
        seeds: how many repetitions.
        seed: of all repetitions.

    Raises:
        InputError: an empty list, a value of a wrong type, or a name that nobody knows.
    """

    policies: tuple[str, ...]
    clusters: tuple[str | Cluster, ...] = ("4xT4,2xV100,2xA100",)
    tasks: tuple[TaskSource, ...] = (60,)
    loads: tuple[str, ...] = ("mixed",)
    arrivals: tuple[str, ...] = ("at_once",)
    intervals_s: tuple[float, ...] = (60.0,)
    batch_sizes: tuple[int, ...] = (4, 8)
    predictors: tuple[str, ...] = (means.PAPER,)
    devices: tuple[str, ...] = (means.EMULATED,)
    draws: tuple[str, ...] = (means.RECIPE,)
    traces: tuple[str, ...] = (means.SHIPPED,)
    start_costs_s: tuple[float, ...] = (0.0,)
    seeds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in LISTS:
            values = getattr(self, name)
            _check(name, values, isinstance(values, tuple) and len(values) > 0, "a list with at least one value")
            for value in values:
                _check(name, value, *_rule(name, value))
        for name, least in (("seeds", 1), ("seed", 0)):
            value = getattr(self, name)
            _check(name, value, _is_int(value) and value >= least, f"a whole number of at least {least}")
        for cluster in self.clusters:
            _cluster(cluster)
        for text in self.policies:
            registry.make(text)
        for text in self.predictors:
            means.predictor(text)
        for text in (*self.devices, *self.draws):
            means.hook(text)

    def __len__(self) -> int:
        """How many cells there are."""
        sizes = [len(getattr(self, name)) for name in LISTS if name != "batch_sizes"]
        total = self.seeds
        for size in sizes:
            total *= size
        return total

    def worlds(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """For each combination but of policies and repetitions: its labels (columns of a result), and what it is."""
        sources = {index: _tasks(source) for index, source in enumerate(self.tasks)}
        axes = [getattr(self, name) for name in _WORLD[2:]]
        for cluster, index, *rest in product(self.clusters, sources, *axes):
            load, arrivals, interval_s, predictor, devices, draw, trace, start_cost_s = rest
            label, given = sources[index]
            labels = {
                "task_set": label,
                "load": load,
                "arrivals": arrivals,
                "interval_s": float(interval_s),
                "predictor": predictor,
                "devices": devices,
                "draw": draw,
                "trace": trace,
                "start_cost_s": float(start_cost_s),
            }
            drawn = {name: labels[name] for name in ("load", "arrivals", "interval_s", "draw", "trace")}
            what = {
                "cluster": means.gpus_as_list(_cluster(cluster)),
                "tasks": given,
                # A task set that is given does not depend on how others would be drawn.
                "drawn": {**drawn, "batch_sizes": list(self.batch_sizes)} if isinstance(given, int) else None,
                "predictor": predictor,
                "devices": devices,
                "start_cost_s": float(start_cost_s),
                "sources": means.sources([predictor, devices, draw, trace]),
            }
            yield labels, what


_WORLD = (
    "clusters",
    "tasks",
    "loads",
    "arrivals",
    "intervals_s",
    "predictors",
    "devices",
    "draws",
    "traces",
    "start_costs_s",
)
LISTS = ("policies", *_WORLD, "batch_sizes")
"""The attributes of a grid that are lists."""


def grid(values: Mapping[str, Any], *, file: str | Path | None = None) -> Grid:
    """A grid from plain values, where a single value may stand for a list of one.

    Args:
        values: by attribute of `Grid`; `policies` must be there.
        file: where they come from, for messages.

    Raises:
        InputError: an unknown or missing name, or a bad value.
    """
    known = {field.name for field in fields(Grid)}
    for name in values:
        if name not in known:
            close = get_close_matches(str(name), sorted(known), n=1)
            advice = f"Did you mean {close[0]!r}?" if close else "Remove it."
            expected = "one of " + ", ".join(field.name for field in fields(Grid))
            raise InputError(file=file, column="grid", found=repr(name), expected=expected, action=advice)
    try:
        return Grid(**{"policies": (), **{name: _listed(name, value) for name, value in values.items()}})
    except InputError as error:
        if file is None or error.file is not None:
            raise
        raise InputError(
            file=file, column=error.column, found=error.found, expected=error.expected, action=error.action
        ) from None


def read_grid(path: str | Path) -> Grid:
    """A grid from a YAML file: attributes of `Grid`, a value or a list each.

    Raises:
        InputError: no such file, no YAML, or a bad grid.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            file=path, found=f"no grid ({reason})", expected="a YAML file", action="Correct the file."
        ) from None
    if not isinstance(values, dict):
        raise InputError(
            file=path,
            found=f"a {type(values).__name__}",
            expected="lines such as `policies: [random, sched-only]`",
            action="Name the policies, and what differs from the defaults.",
        )
    return grid(values, file=path)


def _listed(name: str, value: Any) -> Any:
    if name not in LISTS:
        return value
    if name == "tasks" and isinstance(value, list | tuple) and value and all(isinstance(one, Task) for one in value):
        return (tuple(value),)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _rule(name: str, value: Any) -> tuple[bool, str]:
    if name == "tasks":
        given = isinstance(value, tuple) and len(value) > 0 and all(isinstance(one, Task) for one in value)
        return given or isinstance(value, str) or (_is_int(value) and value >= 1), "a number of tasks, or a CSV file"
    if name == "batch_sizes":
        return _is_int(value) and value >= 1, "whole numbers of at least 1"
    if get_type_hints(Grid)[name] == tuple[float, ...]:
        least = 0 if name == "start_costs_s" else 1e-9
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and least <= value < float("inf"), "seconds"
    if name == "clusters":
        return isinstance(value, str | Cluster), "text such as 4xT4,2xV100,2xA100"
    choices = {"loads": LOADS, "arrivals": ARRIVALS}.get(name)
    if choices:
        return value in choices, "one of " + ", ".join(choices)
    return isinstance(value, str) and bool(value), "text"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(column: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise InputError(column=column, found=repr(value), expected=expected, action="Correct the grid.")


def _cluster(cluster: str | Cluster) -> Cluster:
    return Cluster.parse(cluster) if isinstance(cluster, str) else cluster


def _tasks(source: TaskSource) -> tuple[str, int | list[list[Any]]]:
    """A label, and the number of tasks to draw or the tasks as JSON knows them."""
    if isinstance(source, int):
        return "drawn", source
    tasks: Sequence[Task] = read_tasks(source) if isinstance(source, str) else source
    return source if isinstance(source, str) else "given", [means.as_list(task) for task in tasks]
