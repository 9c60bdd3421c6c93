"""Grids from text: policies and scenarios as named in a YAML file, on the command line or in `hs.compare`, as objects.

`module:function` is a function of the user; `module:function:text` is one that takes the text as its first argument.
Objects are accepted in place of names.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from inspect import signature
from itertools import count, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from heshare.devices.task_sizes import draw as recipe
from heshare.devices.task_sizes import draw_for
from heshare.lab.limits import LimitSource, PowerLimit, check_cluster
from heshare.lab.sweeps.sweep import DrawTasks, Grid, MakeDevices, Scenario
from heshare.policies import registry
from heshare.policies.policy import Policy
from heshare.prediction.checked import checked
from heshare.prediction.load import PREDICTOR_KINDS, TREES, load_predictor, train
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.prediction.profile_predictor import ProfilePredictor, Trained
from heshare.profiles import store
from heshare.shared import display, files, plugins
from heshare.shared.code_version import files_hash
from heshare.shared.errors import InputError, require, unknown
from heshare.shared.inputs.bounds import MOST_CELLS, MOST_S, check_whole
from heshare.shared.yaml_nodes import read_values
from heshare.world import catalogue
from heshare.world.arrivals import ARRIVALS, INTERVAL_S, check_arrivals, split_load
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_file import read_tasks
from heshare.world.task_set import LOADS

PAPER_CLUSTER = "4xT4,2xV100,2xA100"
TRUTH, PROFILE = "truth", "profile:"
EMULATED, RECIPE, SHIPPED = "emulated", "recipe", "shipped"
GIVEN = "given"
"""Label of an object in place of a name; a second one is `given#2`."""
DRAWN = "drawn"
"""Label of tasks that are drawn."""
LABELS = {
    "loads": "load",
    "arrivals": "arrivals",
    "intervals_s": "interval_s",
    "predictors": "predictor",
    "devices": "devices",
    "draws": "draw",
    "traces": "trace",
    "start_costs_s": "start_cost_s",
}
"""Columns of a result, by the argument of `make_grid` that varies them."""
AXES = ("cluster", "task_set", "tasks", *LABELS.values())
"""Columns that tell the scenarios of a result apart."""
_ACTION = "Correct the grid."


def make_grid(
    policies: Any,
    clusters: Any = PAPER_CLUSTER,
    tasks: Any = 60,
    *,
    loads: Any = "mixed",
    arrivals: Any = "at_once",
    intervals_s: Any = INTERVAL_S,
    batch_sizes: Any = (4, 8),
    predictors: Any = TREES,
    devices: Any = EMULATED,
    draws: Any = RECIPE,
    traces: Any = SHIPPED,
    start_costs_s: Any = 0.0,
    seeds: int = 10,
    seed: int = 0,
    power_limit: LimitSource | None = None,
) -> Grid:
    """Return every combination of the values of its arguments, each a value or a list of values.

    Args:
        policies: names of the registry, with parameters in parentheses: `random`, `morak(cap=0.7,k=3)`; or policies.
        clusters: such as `4xT4,2xV100,2xA100`, or clusters, whose GPUs may differ from the catalogue in memory, clocks
            and TDP.
        tasks: number of tasks to draw, or a CSV file of tasks, or the tasks.
        loads: load class of the drawn models: `low`, `medium`, `high`, `mixed`.
        arrivals: `at_once`, `exponential`, `miso`, `front_loaded`, a file, or seconds, see `heshare.world.arrivals`;
            drawn ones and a file also at an offered load of the cluster: `exponential@0.8`.
        intervals_s: mean time between two arrivals, s.
        batch_sizes: inference batch sizes of drawn tasks; one list for the whole grid.
        predictors: the policies' predictors: `trees` or `random-forest` (see `load_predictor`), `truth` (the device
            model), `profile:PATH` (trained on that profile), `module:function` that returns one, or predictors.
        devices: the devices of a cluster: `emulated`, or `module:function` that makes the devices of a cluster.
        draws: how tasks are drawn: `recipe`, or `module:function` with the arguments of
            `heshare.devices.task_sizes.draw`.
        traces: `shipped` percentiles, or a trace file to take durations from.
        start_costs_s: time that a task loads whenever it starts, s.
        seeds: number of repetitions.
        seed: the seed of all repetitions.
        power_limit: of every run: watts, or a CSV file with the columns time_s and limit_w; None for none.

    Raises:
        InputError: an empty list, a value of a wrong type, or an unknown name.
    """
    limit = None if power_limit is None else PowerLimit.parse(power_limit)
    for name, value, least in (("seeds", seeds, 1), ("seed", seed, 0)):
        check_whole(name, value, least=least)

    sizes = _listed("batch_sizes", batch_sizes)
    for size in sizes:
        require("batch_sizes", repr(size), _is_int(size) and size >= 1, "whole numbers of at least 1", _ACTION)

    # By argument the values, each with its label in the results.
    makers = {
        "loads": _each("loads", loads, _load),
        "arrivals": _each("arrivals", arrivals, _arrivals),
        "intervals_s": _each("intervals_s", intervals_s, lambda value: _seconds("intervals_s", value, 1e-9)),
        "predictors": _each("predictors", predictors, _predictor_maker),
        "devices": _each("devices", devices, _device_maker),
        "draws": _each("draws", draws, _drawer),
        "traces": _each("traces", traces, _trace),
        "start_costs_s": _each("start_costs_s", start_costs_s, lambda value: _seconds("start_costs_s", value, 0.0)),
    }
    of_tasks = _each("tasks", _task_sources(tasks), _task_set)
    gpus = [cluster for _, cluster in _each("clusters", clusters, lambda value: (None, _cluster(value, limit)))]
    if any(make is None for _, make in makers["devices"]):
        for kind in {kind: None for cluster in gpus for kind in cluster.kinds}:
            catalogue.check_card(kind)

    made = _policies(_listed("policies", policies))
    cells = prod((len(made), len(gpus), len(of_tasks), seeds, *map(len, makers.values())))
    require("seeds", f"{cells} cells", cells <= MOST_CELLS, f"at most {MOST_CELLS} cells", "Split the grid.")

    scenarios = []
    for cluster, (task_set, given), *chosen in product(gpus, of_tasks, *makers.values()):
        labels = {column: label for column, (label, _) in zip(LABELS.values(), chosen, strict=True)}
        load, when, interval_s, make_predictor, make_devices, draw, trace, start_cost_s = (value for _, value in chosen)
        drawn = partial(
            draw_for,
            draw,
            given,
            cluster,
            load=load,
            arrivals=when,
            interval_s=interval_s,
            batch_sizes=tuple(sizes),
            trace=trace,
        )
        read = [*catalogue.registered_files(), *_profile_tables(str(labels["predictor"]))]
        if isinstance(given, int):
            read += [
                Path(text) for text in (split_load(when)[0], trace) if isinstance(text, str) and text not in ARRIVALS
            ]
        scenario = Scenario(
            {"task_set": task_set, **labels},
            cluster,
            drawn if isinstance(given, int) else given,
            make_predictor,
            make_devices,
            start_cost_s,
            limit,
            tuple(read),
        )
        scenarios.append(scenario)
    return Grid(scenarios, made, int(seeds), int(seed))


def parse_grid(values: Mapping[str, Any], *, file: str | Path | None = None) -> Grid:
    """Return a grid from plain values by argument of `make_grid`; `policies` is required.

    `file` is their source, for messages.

    Raises:
        InputError: an unknown or missing name, or a bad value.
    """
    known = list(signature(make_grid).parameters)
    for name in values:
        if name not in known:
            raise unknown(name, known, "Remove it.", file=file, column="grid")
    try:
        return make_grid(**{"policies": (), **values})
    except InputError as error:
        if file is None or error.file is not None:
            raise
        raise InputError(error.found, error.expected, error.action, file=file, column=error.column) from None


def read_grid(path: str | Path) -> Grid:
    """Return the grid of a YAML file: arguments of `make_grid`, a value or a list each.

    Raises:
        InputError: no such file, no YAML, a key twice, or a bad grid.
    """
    return parse_grid(grid_values(path), file=path)


def grid_values(path: str | Path) -> dict[str, Any]:
    """Return the arguments of `make_grid` that a YAML file has, not checked; errors as `read_grid`."""
    values = read_values(files.as_path(path), "a grid in YAML", "Correct the file.")
    expected = "lines such as `policies: [random, sched-only]`"
    action = "Name the policies, and what differs from the defaults."
    require(None, f"a {type(values).__name__}", isinstance(values, dict), expected, action, file=path)
    return {str(name): value for name, value in values.items()}


def _each(name: str, values: Any, make: Callable[[Any], tuple[object, Any]]) -> list[tuple[object, Any]]:
    """Return each value with its label in the results, which no other has: further objects get a number.

    Raises:
        InputError: no value, a bad one, or one twice, which would count double in medians.
    """
    made: list[tuple[object, Any]] = []
    objects: list[Any] = []
    for value in _listed(name, values):
        label, result = make(value)
        if label == GIVEN:
            again = any(value is each for each in objects)
            objects.append(value)
            label = GIVEN if len(objects) == 1 else f"{GIVEN}#{len(objects)}"
        else:
            # A number of tasks has the same label as another.
            again = any(label == each and (label not in (None, DRAWN) or result == kept) for each, kept in made)
        require(name, f"{display.found(value)} twice", not again, "each value once", _ACTION)
        made.append((label, result))
    return made


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    values = list(value) if isinstance(value, list | tuple | range) else [value]
    require(name, repr(value), len(values) > 0, "a list with at least one value", _ACTION)
    return values


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _policies(chosen: Iterable[str | Policy]) -> dict[str, Policy]:
    """Return policies by their name in the results: objects get a number if another policy has the same name."""
    chosen = list(chosen)
    taken = {*registry.policies(variants=True), *[text for text in chosen if isinstance(text, str)]}
    made: dict[str, Policy] = {}

    for policy in chosen:
        require("policies", repr(policy), isinstance(policy, str | Policy), "names of policies, or policies", _ACTION)
        again = any(policy is each for each in made.values())
        if isinstance(policy, str):
            policy = registry.make(policy)
            name = policy.name
            again = name in made
        else:
            numbered = (policy.name if number == 1 else f"{policy.name}#{number}" for number in count(1))
            name = next(each for each in numbered if each not in taken and each not in made)
        require("policies", f"{policy.name} twice", not again, "each policy once", _ACTION)
        made[name] = policy
    return made


def _cluster(value: Any, limit: PowerLimit | None) -> Cluster:
    require("clusters", repr(value), isinstance(value, str | Cluster), f"text such as {PAPER_CLUSTER}", _ACTION)
    cluster = Cluster.parse(value)
    if limit is not None:
        check_cluster(cluster, limit)
    return cluster


def _task_sources(tasks: Any) -> list[Any]:
    # A list of tasks is one task set.
    listed = _listed("tasks", tasks)
    return [tuple(listed)] if all(isinstance(each, Task) for each in listed) else listed


def _task_set(source: Any) -> tuple[str, int | tuple[Task, ...]]:
    """Return a label, and the number of tasks to draw or the tasks."""
    if isinstance(source, str):
        return source, tuple(read_tasks(source))
    if isinstance(source, tuple) and source and all(isinstance(task, Task) for task in source):
        return GIVEN, source
    good = _is_int(source) and source >= 1
    require("tasks", repr(source), good, "a number of tasks, or a CSV file", _ACTION)
    return DRAWN, source


def _load(value: Any) -> tuple[object, Any]:
    require("loads", repr(value), value in LOADS, "one of " + ", ".join(LOADS), _ACTION)
    return value, value


def _seconds(name: str, value: Any, least_s: float) -> tuple[object, float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    require(name, repr(value), number and least_s <= value <= MOST_S, f"seconds, at most {MOST_S:g}", _ACTION)
    return float(value), float(value)


def _arrivals(value: Any) -> tuple[object, Any]:
    kind = check_arrivals(split_load(value)[0])
    return (value, value) if isinstance(kind, str) else (GIVEN, kind)


def _trace(value: Any) -> tuple[object, str | None]:
    text = str(value) if isinstance(value, Path) else value
    require("traces", repr(value), isinstance(text, str) and bool(text), f"{SHIPPED}, or a file", _ACTION)
    return text, None if text == SHIPPED else str(_existing(text))


def _predictor_maker(value: Any) -> tuple[object, Callable[[], Predictor]]:
    if not isinstance(value, str):
        expected = "the name of a predictor, or a Predictor"
        require("predictors", display.found(value), isinstance(value, Predictor), expected, _ACTION)
        return GIVEN, partial(_same, value)
    if value in PREDICTOR_KINDS:
        return value, partial(load_predictor, kind=value)
    if value == TRUTH:
        return value, DevicePredictor
    if value.startswith(PROFILE):
        tables = _profile_tables(value)
        return value, partial(_of_profile, value.removeprefix(PROFILE), files_hash(tables))
    if ":" not in value:
        known = ", ".join((*PREDICTOR_KINDS, TRUTH, "profile:PATH"))
        raise InputError(repr(value), f"{known} or module:function", "Choose one.", column="predictors")
    return value, partial(_checked, _function(value))


def _device_maker(value: Any) -> tuple[object, MakeDevices | None]:
    if value == EMULATED:
        return value, None
    return _named_function("devices", value)


def _drawer(value: Any) -> tuple[object, DrawTasks]:
    if value == RECIPE:
        return value, recipe
    return _named_function("draws", value)


def _named_function(column: str, value: Any) -> tuple[object, Callable[..., Any]]:
    if isinstance(value, str):
        return value, _function(value)
    require(column, repr(value), callable(value), "module:function, or a function", _ACTION)
    return GIVEN, value


def _function(name: str) -> Callable[..., Any]:
    module, _, rest = name.partition(":")
    function_name, _, text = rest.partition(":")
    function = plugins.function(f"{module}:{function_name}", "grid")
    return partial(function, text) if text else function


def _same(predictor: Predictor) -> Predictor:
    return predictor


def _checked(make: Callable[[], Predictor]) -> Predictor:
    return checked(make())


def _of_profile(path: str, digest: str) -> Predictor:
    return ProfilePredictor(partial(_trained, path, digest))


@cache
def _trained(path: str, digest: str) -> Trained:
    # The digest is an argument so that a profile that has changed is trained on again.
    return train(store.read(path), seed=0)


def _profile_tables(predictor: str) -> list[Path]:
    """Return the files of a predictor such as `profile:PATH`; none of another one."""
    if not predictor.startswith(PROFILE):
        return []
    folder = Path(predictor.removeprefix(PROFILE))
    return sorted(folder.rglob("profile.csv")) if folder.is_dir() else [_existing(str(folder))]


def _existing(path: str) -> Path:
    if not Path(path).is_file():
        raise InputError("no such file", "a file", "Correct the path.", file=path)
    return Path(path)
