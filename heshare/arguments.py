"""Conversion of the arguments of the API and the command line (tasks, GPUs, policy, predictor) to checked objects.

A task set may be tasks, their number, or a `pandas.DataFrame` with the columns of `heshare.world.task_file`; a policy
may be a name, a `Policy` or a `Plan`. `Task`, `TaskSet.of`, `Cluster` and `Settings` check their own values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.task_sizes import draw
from heshare.lab.sweeps.random_streams import TASKS, Repetition
from heshare.policies import registry
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.policies.policy import Policy
from heshare.prediction.checked import CheckedPredictor, checked
from heshare.prediction.load import load_predictor
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.scheduling.front import Front
from heshare.scheduling.plan import Plan
from heshare.shared.display import found
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import check_whole
from heshare.world.arrivals import DRAWN, INTERVAL_S, Arrivals, split_load
from heshare.world.catalogue import check_card
from heshare.world.cluster import Cluster
from heshare.world.task import Task, TaskSet
from heshare.world.task_file import read_frame
from heshare.world.task_set import TaskOptions

TasksLike = int | pd.DataFrame | Iterable[Task]
"""How many tasks to draw, a frame with the columns of a task file, or tasks."""

_POLICY = "a policy's name, a Policy, or a Plan"


def as_tasks(source: Any, streams: Repetition) -> TaskSet:
    """Return a task set; a number of tasks is drawn from the repetition's stream.

    Raises:
        InputError: no `TasksLike`, a bad frame, or no valid task set (`TaskSet.of`).
    """
    if is_count(source):
        return TaskSet(draw(int(source), rng=streams.rng(TASKS)))
    if isinstance(source, pd.DataFrame):
        return TaskSet(read_frame(source))
    return TaskSet.of(source)


def as_tasks_at_once(source: Any, streams: Repetition) -> TaskSet:
    """Return a task set that can be planned at once: all tasks arrive at 0 s, each needs one GPU.

    Raises:
        InputError: as `as_tasks`, a task that arrives later, or a gang.
    """
    tasks = as_tasks(source, streams)
    for task in tasks:
        if task.arrival_s > 0:
            raise InputError(
                f"task {task.id}, which arrives at {task.arrival_s:g} s",
                "tasks that all arrive at 0 s, since this search ignores arrivals",
                "Run the policy, heshare:trade-off or heshare+:trade-off, which plans again whenever tasks arrive, or "
                "set the arrivals to 0.",
                column="arrival_s",
            )
        if task.gpus > 1:
            raise InputError(
                f"task {task.id}, for {task.gpus} GPUs",
                "tasks on one GPU each, since plans have no gangs",
                "Run such tasks under a policy, such as fifo.",
                column="gpus",
            )
    return tasks


def as_cluster(cluster: Any, predictor: Predictor | None = None) -> Cluster:
    """Return a cluster; its GPUs must be in the catalogue, unless the user's own predictor is given.

    Raises:
        InputError: no cluster, or a GPU that `heshare.world.catalogue.check_card` refuses.
    """
    made = Cluster.parse(cluster)
    if not isinstance(predictor, CheckedPredictor):
        for kind in made.kinds:
            check_card(kind)
    return made


def as_policy(policy: Any, tasks: TaskSet, cluster: Cluster) -> Policy:
    """Return a policy from a name, a plan of these tasks on this cluster, or a `Policy` object.

    Raises:
        InputError: an unknown name, another type, or a plan for other tasks or another cluster.
    """
    if isinstance(policy, str):
        return registry.make(policy)
    if isinstance(policy, Plan):
        check_plan(policy, tasks, cluster)
        return FixedPlanPolicy(policy)
    return as_policy_object(policy)


def as_policy_object(policy: Any) -> Policy:
    """Return a policy as it is, or an `InputError` for another object."""
    action = "Choose a name of hs.policy_names(), or pass an object of a class such as docs/policies.md describes."
    if isinstance(policy, Front):
        action = "Choose one of its plans, such as front.trade_off."
    elif isinstance(policy, type):
        action = f"Pass an object of the class: {policy.__name__}(...)."
    require("policy", found(policy), isinstance(policy, Policy), _POLICY, action)
    made: Policy = policy
    return made


def check_plan(plan: Plan, tasks: TaskSet, cluster: Cluster) -> None:
    """Raise `InputError` if a plan is for other tasks or another cluster."""
    own = TaskSet.of(plan.tasks)
    expected = f"those of the plan: {len(own)} tasks on {plan.cluster}"
    action = "Give the task set and the cluster that the plan was made for, or plan again."

    require("plan", f"{len(tasks)} tasks", len(tasks) == len(own), expected, action)
    other = next((task.id for task, each in zip(own, tasks, strict=True) if task != each), None)
    require("plan", f"a task {other} that is not the plan's", other is None, expected, action)
    require("plan", f"the cluster {cluster}", cluster == plan.cluster, expected, action)


def as_predictor(predictor: Any) -> Predictor:
    """Return a checked predictor; for None the default one, which is loaded at its first prediction.

    Raises:
        InputError: no `Predictor`.
    """
    if predictor is None:
        return load_predictor()
    action = "Pass hs.load_predictor() or hs.load_predictor(kind='random-forest'), for example."
    require("predictor", found(predictor), isinstance(predictor, Predictor), "a Predictor", action)
    made: Predictor = predictor
    return checked(made)


def check_kind(column: str, value: Any, kind: type) -> None:
    """Raise `InputError` unless an argument is an object of a class."""
    name = kind.__name__
    require(column, found(value), isinstance(value, kind), f"{name}(...)", f"Import {name} from {kind.__module__}.")


def is_count(source: Any) -> bool:
    """Return whether `source` is a number of tasks to draw."""
    return isinstance(source, Integral) and not isinstance(source, bool)


def check_interval(arrivals: Any, interval_s: Any) -> None:
    """Raise `InputError` if a mean interval is given for arrivals that are not drawn with one."""
    kind, load = split_load(arrivals)
    counts = isinstance(kind, str) and kind in DRAWN and load is None
    what = f"{found(interval_s)} with {'a load' if load is not None else f'the arrivals {found(kind)}'}"
    action = "Choose such arrivals, or leave out the interval."
    require("interval_s", what, interval_s is None or counts, f"arrivals {', '.join(DRAWN)}", action)


def draw_options(
    source: Any,
    *,
    load: str = "mixed",
    arrivals: Arrivals = "at_once",
    interval_s: float | None = None,
    batch_sizes: Sequence[int] = (4, 8),
    trace: Any = None,
) -> TaskOptions:
    """Return the options with which a number of tasks is drawn; none for tasks that are given.

    Raises:
        InputError: an interval for arrivals without one, or an option of drawn tasks for tasks that are given.
    """
    check_interval(arrivals, interval_s)
    options: TaskOptions = {
        "load": load,
        "arrivals": arrivals,
        "interval_s": INTERVAL_S if interval_s is None else interval_s,
        "batch_sizes": batch_sizes,
        "trace": trace,
    }
    if is_count(source):
        return options

    # An option has no meaning for tasks that are given, so each must have the default of a drawn task set.
    defaults = dict(draw_options(1))
    changed = [name for name, value in options.items() if _plain(value) != defaults[name]]
    what = f"tasks that are given, and {', '.join(changed)}"
    require("tasks", what, not changed, "a number of tasks to draw", "Leave it out, or give a number.")
    return {}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | np.ndarray) else value


def as_grid_tasks(source: Any) -> int | tuple[Task, ...]:
    """Return the number of tasks that a grid draws in each repetition, or one task set for all; see `as_tasks`."""
    return int(source) if is_count(source) else as_tasks(source, Repetition(0, 0))


def as_sizes(batch_sizes: Any) -> tuple[int, ...]:
    """Return inference batch sizes, whole numbers of at least 1."""
    sizes = _listed(batch_sizes)
    action = "Write them like (4, 8)."
    require("batch_sizes", found(batch_sizes), bool(sizes), "a list of inference batch sizes", action)
    return tuple([check_whole("batch_sizes", size, least=1) for size in sizes])


def as_policies(policies: Any) -> tuple[str | Policy, ...]:
    """Return a tuple of policies and names; a single one becomes a tuple of one; None: the default ones.

    Raises:
        InputError: an empty list, or an element that is no name and no policy.
    """
    if policies is None:
        return tuple(registry.default_names())
    listed = (policies,) if isinstance(policies, str | Policy) else _listed(policies)
    action = "Choose from hs.policy_names(); pass or register a policy of your own (docs/policies.md)."
    require("policies", found(policies), bool(listed), "at least one name of a policy, or None", action)
    return tuple([each if isinstance(each, str) else as_policy_object(each) for each in listed])


def as_metrics(metrics: Any) -> dict[str, Callable[[Run], float]]:
    """Return metrics, functions of a run by name; an empty dict for None."""
    given = {} if metrics is None else metrics
    good = isinstance(given, Mapping) and all(isinstance(name, str) and callable(given[name]) for name in given)
    expected = 'functions of a run by name, such as {"p95_s": f}'
    require("metrics", found(metrics), good, expected, "Correct the argument.")
    return dict(given)


def _listed(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | dict) else ()
