"""Arguments of `import heshare as hs` and of the command line: one meaning and one message for each, at the entry.

A task set may be tasks, how many to draw, a `pandas.DataFrame` or CSV file with the columns of
`heshare.world.task_file`; a policy may be a name, a `Policy` or a `Plan`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from heshare.lab.sweeps.random_streams import Repetition
from heshare.policies import registry
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.policies.policy import Policy
from heshare.prediction.checked import CheckedPredictor, checked
from heshare.prediction.load import load_predictor
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.scheduling.front import Front
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.errors import InputError, require
from heshare.world.arrivals import DRAWN, INTERVAL_S, split_load
from heshare.world.catalogue import check_card
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_file import read_frame, read_tasks

TasksLike = int | str | Path | pd.DataFrame | Iterable[Task]
"""How many tasks to draw, a CSV file, a frame with its columns, or tasks."""
_Kind = TypeVar("_Kind")

_DRAWN = {"load": "mixed", "arrivals": "at_once", "interval_s": INTERVAL_S, "batch_sizes": (4, 8), "trace": None}
_TASKS = "tasks, how many to draw, a DataFrame, or the path of a CSV file"
_POLICY = "a policy's name, a Policy, or a Plan"


def as_repetition(seed: Any, repetition: Any = 0) -> Repetition:
    """Return the random streams of a repetition of a seed.

    Raises:
        InputError: one of them is not a whole number of at least zero.
    """
    return Repetition(as_whole("repetition", repetition, least=0), as_whole("seed", seed, least=0))


def as_whole(column: str, value: Any, *, least: int) -> int:
    """Return a whole number of at least `least`, of Python or NumPy; `column` names it in messages."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    require(column, _short(value), good, f"a whole number of at least {least}", "Correct the argument.")
    return int(value)


def as_tasks(source: Any, streams: Repetition, *, at_once: bool = False, **drawn: Any) -> tuple[Task, ...]:
    """Return a task set, in the order of its ids.

    Args:
        source: a `TasksLike`.
        streams: draws the tasks if a number is given.
        at_once: whether all tasks must be there from the start, because the search ignores arrivals.
        **drawn: how they are drawn, see `Repetition.task_set`.

    Raises:
        InputError: another type, no task, ids that are not 0 to n-1, a bad file, or arrivals with `at_once`.
    """
    tasks = tuple(sorted(_tasks(source, streams, drawn), key=lambda task: task.id))
    ids = [task.id for task in tasks]
    found = f"{len(ids)} tasks with the ids {', '.join(map(str, ids[:5]))}{', ...' if len(ids) > 5 else ''}"
    require("tasks", found, ids == list(range(len(ids))), "each id of 0 to n-1 once", "Number the tasks from 0.")
    late = next((task for task in tasks if at_once and task.arrival_s > 0), None)
    if late is not None:
        raise InputError(
            f"task {late.id}, which arrives at {late.arrival_s:g} s",
            "tasks that are all there at 0 s, since this search ignores arrivals",
            "Run the policy, heshare:trade-off or heshare+:trade-off, which plans again whenever tasks arrive, or set "
            "the arrivals to 0.",
            column="arrival_s",
        )
    gang = next((task for task in tasks if at_once and task.gpus > 1), None)
    if gang is not None:
        raise InputError(
            f"task {gang.id}, for {gang.gpus} GPUs",
            "tasks on one GPU each, since plans have no gangs",
            "Run such tasks under a policy, such as fifo.",
            column="gpus",
        )
    return tasks


def as_drawn(source: Any, *, arrivals: Any = "at_once", interval_s: Any = None, **how: Any) -> dict[str, Any]:
    """Return how the tasks of a number are drawn, the arguments of `Repetition.task_set`.

    Raises:
        InputError: an interval that arrivals do not take, or tasks that are given and not drawn.
    """
    kind, load = split_load(arrivals)
    counts = isinstance(kind, str) and kind in DRAWN and load is None
    found = f"{_short(interval_s)} with {'a load' if load is not None else f'the arrivals {_short(kind)}'}"
    action = "Choose such arrivals, or leave out the interval."
    require("interval_s", found, interval_s is None or counts, f"arrivals {', '.join(DRAWN)}", action)
    drawn = {"arrivals": arrivals, "interval_s": INTERVAL_S if interval_s is None else interval_s, **how}
    if isinstance(source, Integral):
        return drawn
    changed = [name for name, value in drawn.items() if _plain(value) != _DRAWN[name]]
    found = f"tasks that are given, and {', '.join(changed)}"
    require("tasks", found, not changed, "a number of tasks to draw", "Leave it out, or give a number.")
    return {}


def as_cluster(cluster: Any, predictor: Predictor | None = None) -> Cluster:
    """Return a cluster; its GPUs must be those of the catalogue, unless a predictor of one's own answers for them.

    Raises:
        InputError: no cluster, or a GPU that `heshare.world.catalogue.check_card` refuses.
    """
    made = Cluster.parse(cluster)
    for kind in made.kinds if not isinstance(predictor, CheckedPredictor) else ():
        check_card(kind)
    return made


def as_planned(
    tasks: Any, cluster: Any, streams: Repetition, predictor: Any
) -> tuple[tuple[Task, ...], Cluster, Predictor]:
    """Return what a search plans: tasks that are all there at 0, the GPUs, and the predictor; raises as those do."""
    to_plan, answers = as_tasks(tasks, streams, at_once=True), as_predictor(predictor)
    return to_plan, as_cluster(cluster, answers), answers


def as_policy(policy: Any, tasks: tuple[Task, ...], cluster: Cluster) -> Policy:
    """Return the policy of a name, of a plan of these tasks on this cluster, or as it is.

    Raises:
        InputError: an unknown name, another type, or a plan for other tasks or another cluster.
    """
    if isinstance(policy, str):
        return registry.make(policy)
    if isinstance(policy, Plan):
        check_plan(policy, tasks, cluster)
        return FixedPlanPolicy(policy)
    return _as_object(policy)


def _as_object(policy: Any) -> Policy:
    missing = [name for name in ("name", "traits", "tick_s", "reset", "decide") if not hasattr(policy, name)]
    if missing or isinstance(policy, type):
        action = "Choose a name of hs.policy_names(), or pass an object of a class such as docs/guide.md describes."
        if isinstance(policy, Front):
            action = "Choose one of its plans, such as front.trade_off."
        elif isinstance(policy, type):
            action = f"Pass an object of the class: {policy.__name__}(...)."
        raise InputError(_short(policy), _POLICY, action, column="policy")
    made: Policy = policy
    return made


def check_plan(plan: Plan, tasks: Iterable[Task], cluster: Cluster) -> None:
    """Raise `InputError` if a plan is for other tasks or for another cluster than these."""
    own, given = tuple(sorted(plan.tasks, key=lambda task: task.id)), tuple(tasks)
    other = next((task.id for task, each in zip(own, given, strict=False) if task != each), None)
    same_count = len(given) == len(own)
    found = f"a task {other} that is not the plan's" if same_count else f"{len(given)} tasks"
    expected = f"those of the plan: {len(own)} tasks on {plan.cluster}"
    action = "Give the task set and the cluster that the plan was made for, or plan again."
    require("plan", found, same_count and other is None, expected, action)
    require("plan", f"the cluster {cluster}", cluster == plan.cluster, expected, action)


def as_queues(queues: Any) -> tuple[tuple[Batch, ...], ...]:
    """Return the queues of a plan, the batches of each GPU in order of execution."""
    rows = [queue if isinstance(queue, list | tuple) else (None,) for queue in _listed(queues)]
    good = bool(rows) and all(isinstance(batch, Batch) for queue in rows for batch in queue)
    action = "Import Batch from heshare.scheduling.plan."
    require("plan", _short(queues), good, "a Plan, or a list of Batch(...) for each GPU", action)
    return tuple([tuple(queue) for queue in rows])


def as_kind(column: str, value: Any, kind: type[_Kind], default: _Kind) -> _Kind:
    """Return an object of a class, or the default for None.

    Raises:
        InputError: an object of another class.
    """
    if value is None:
        return default
    name = kind.__name__
    require(column, _short(value), isinstance(value, kind), f"{name}(...)", f"Import {name} from {kind.__module__}.")
    made: _Kind = value
    return made


def as_predictor(predictor: Any) -> Predictor:
    """Return a predictor; for None the default one, which is loaded when it first predicts.

    Raises:
        InputError: something else.
    """
    if predictor is None:
        return load_predictor()
    good = hasattr(predictor, "co_run") and hasattr(predictor, "calls") and not isinstance(predictor, type)
    action = "Pass hs.load_predictor() or hs.load_predictor(kind='random-forest'), for example."
    require("predictor", _short(predictor), good, "a Predictor", action)
    made: Predictor = predictor
    return checked(made)


def check_budget(budget_s: Any) -> None:
    """Raise `InputError` unless this is None or a finite time above zero, s."""
    number = isinstance(budget_s, Real) and not isinstance(budget_s, bool)
    good = budget_s is None or (number and 0 < budget_s < math.inf)
    require("budget_s", _short(budget_s), good, "finite seconds above zero, or None", "Correct the budget.")


def as_grid_tasks(source: Any) -> int | tuple[Task, ...]:
    """Return how many tasks a grid draws in each repetition, or the task set of all; see `as_tasks`."""
    if isinstance(source, Integral) and not isinstance(source, bool):
        return int(source)
    return as_tasks(source, Repetition(0, 0))


def as_sizes(batch_sizes: Any) -> tuple[int, ...]:
    """Return inference batch sizes, whole numbers of at least 1."""
    sizes = _listed(batch_sizes)
    action = "Write them like (4, 8)."
    require("batch_sizes", _short(batch_sizes), bool(sizes), "a list of inference batch sizes", action)
    return tuple([as_whole("batch_sizes", size, least=1) for size in sizes])


def as_policies(policies: Any) -> tuple[str | Policy, ...]:
    """Return policies and names of policies; a single one means a list of one, None means all.

    Raises:
        InputError: an empty list, or something else than names and policies.
    """
    if policies is None:
        return tuple(registry.policies())
    listed = (policies,) if isinstance(policies, str) or hasattr(policies, "decide") else _listed(policies)
    action = "Choose from hs.policy_names(); pass or register a policy of your own (docs/guide.md)."
    require("policies", _short(policies), bool(listed), "at least one name of a policy, or None for all", action)
    return tuple([each if isinstance(each, str) else _as_object(each) for each in listed])


def check_here(policies: Iterable[str | Policy], predictor: Any, metrics: Any, *, elsewhere: bool) -> None:
    """Refuse objects in a comparison whose runs are stored or in other processes, which know them by name alone."""
    here = predictor is not None or metrics or not all(isinstance(policy, str) for policy in policies)
    action = "Leave out cells and n_jobs, or use a grid with module:function."
    found = "a policy, a predictor or metrics as objects, with cells or n_jobs"
    require("policies", found, not (here and elsewhere), "objects in one process that stores nothing", action)


def as_metrics(metrics: Any) -> dict[str, Callable[[Run], float]]:
    """Return metrics by name, functions of a run; none for None."""
    given = {} if metrics is None else metrics
    good = isinstance(given, Mapping) and all(isinstance(name, str) and callable(given[name]) for name in given)
    require(
        "metrics", _short(metrics), good, 'functions of a run by name, such as {"p95_s": f}', "Correct the argument."
    )
    return dict(given)


def _tasks(source: Any, streams: Repetition, drawn: dict[str, Any]) -> list[Task]:
    if isinstance(source, Integral) and not isinstance(source, bool):
        return list(streams.task_set(int(source), **drawn))
    if isinstance(source, str | Path):
        action = "Correct the path; tasks come first, then the cluster. Write a number without quotes."
        require("tasks", f"{str(source)!r}, which is no file", Path(source).is_file(), _TASKS, action)
        return list(read_tasks(source))
    if isinstance(source, pd.DataFrame):
        return list(read_frame(source))
    tasks = _listed(source)
    wrong = [item for item in tasks if not isinstance(item, Task)]
    found = f"{_short(wrong[0])} in a {type(source).__name__}" if wrong else _short(source)
    good = bool(tasks) and not wrong
    require("tasks", found, good, f"{_TASKS}; at least one", "Tasks come first, then the cluster.")
    return list(tasks)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | np.ndarray) else value


def _listed(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | dict) else ()


def _short(value: Any) -> str:
    if value is None or isinstance(value, bool | Real | str):
        return repr(value) if len(repr(value)) <= 60 else f"text of {len(str(value))} characters"
    if isinstance(value, list | tuple | dict):
        return f"an empty {type(value).__name__}" if not value else f"a {type(value).__name__} of {len(value)}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of {type(value).__name__}"
