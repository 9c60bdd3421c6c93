"""Tasks: a workload with a number of iterations and an arrival (Section III-B); and sets of tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import SupportsIndex, overload

import pandas as pd

from heshare.shared import display
from heshare.shared.errors import InputError, require
from heshare.shared.html_tables import html_table
from heshare.shared.inputs.bounds import MOST_GPUS, MOST_ITERATIONS, MOST_S, MOST_TASKS
from heshare.world.workload import DEFAULT_PRECISION, Workload

_ITERATIONS = f"a finite number above zero, at most {MOST_ITERATIONS:g}"
_WIDTHS = f"numbers of GPUs of at least one and at most {MOST_GPUS}"
_EPOCHS = f"at least one epoch, at most {MOST_ITERATIONS:g}"


@dataclass(frozen=True, slots=True)
class Task:
    """One task t_i of a task set T.

    Attributes:
        id: its index in the task set, 0 .. n-1.
        workload: its workload.
        iterations: how many iterations (inference batches) it runs, > 0; need not be whole.
        arrival_s: its arrival, seconds after the start.
        gpus: how many GPUs it needs, all at the same time (a gang); 1 for every task of Table IV.
        widths: other numbers of GPUs that it may run on instead, ascending; empty for a rigid task.
        priority: its class, 0 the most urgent.
        deadline_s: its deadline, seconds after the start; `inf` for none.
        epochs: number of equal parts of its work at whose ends it is saved; work since then is lost when it is taken
            off a GPU. None for a task that loses nothing.

    Example:
        >>> from heshare import Task, Workload
        >>> task = Task(0, Workload("resnet50", 16), iterations=1000, arrival_s=60)
        >>> task.gpus, task.deadline_s
        (1, inf)
    """

    id: int
    workload: Workload
    iterations: float
    arrival_s: float = 0.0
    gpus: int = 1
    widths: tuple[int, ...] = ()
    priority: int = 0
    deadline_s: float = math.inf
    epochs: int | None = None

    def __post_init__(self) -> None:
        self._check_types()
        for column, value, good, expected in (
            ("iterations", self.iterations, 0 < self.iterations <= MOST_ITERATIONS, _ITERATIONS),
            (
                "arrival_s",
                self.arrival_s,
                0 <= self.arrival_s <= MOST_S,
                f"a time of at least zero and at most {MOST_S:g} s",
            ),
            ("gpus", self.gpus, 1 <= self.gpus <= MOST_GPUS, f"at least one GPU and at most {MOST_GPUS}"),
            ("widths", self.widths, all(1 <= width <= MOST_GPUS for width in self.widths), _WIDTHS),
            (
                "priority",
                self.priority,
                0 <= self.priority <= MOST_TASKS,
                f"a class of at least zero and at most {MOST_TASKS}",
            ),
            ("deadline_s", self.deadline_s, self.deadline_s > self.arrival_s, "a time after its arrival"),
            ("epochs", self.epochs, self.epochs is None or 1 <= self.epochs <= MOST_ITERATIONS, _EPOCHS),
        ):
            if not good:
                raise InputError(f"{value} for task {self.id}", expected, "Correct the task.", column=column)

    def _check_types(self) -> None:
        if not isinstance(self.workload, Workload):
            action = f"Write the workload of task {self.id} like Workload('resnet50', 8)."
            raise InputError(repr(self.workload), "a Workload", action, column="workload")
        whole = (self.id, self.gpus, self.priority, *self.widths, *(() if self.epochs is None else (self.epochs,)))
        for values, kind, expected in (
            (whole, Integral, "whole numbers for id, gpus, widths, priority and epochs"),
            ((self.iterations, self.arrival_s, self.deadline_s), Real, "numbers for iterations, arrival and deadline"),
        ):
            for value in values:
                if not isinstance(value, kind) or isinstance(value, bool):
                    raise InputError(f"{value!r} in task {self.id!r}", expected, "Correct the task.", column="tasks")


class TaskSet(tuple[Task, ...]):
    """A task set T: a tuple of tasks with a short text and a table in Jupyter; so are its slices."""

    __slots__ = ()

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> TaskSet:
        """Return tasks as a set that can be planned and run: in the order of their ids, which are 0 to n-1.

        Raises:
            InputError: no task, something else than tasks, or other ids.
        """
        expected = "tasks, how many to draw, or a DataFrame"
        action = "Tasks come first, then the cluster. hs.read_tasks reads a file; a number has no quotes."
        good = isinstance(tasks, Iterable) and not isinstance(tasks, str)
        require("tasks", display.found(tasks), good, expected, action)

        given = tuple(tasks)
        require("tasks", "no task", bool(given), "at least one task", "Make them by hs.task_set, or Task(...).")
        wrong = next((each for each in given if not isinstance(each, Task)), None)
        require("tasks", f"{display.found(wrong)} among them", wrong is None, "tasks", "Make them by Task(...).")

        ordered = sorted(given, key=lambda task: task.id)
        ids = [task.id for task in ordered]
        first = ", ".join(map(str, ids[:5]))
        what = f"{len(ids)} tasks with the ids {first}{', ...' if len(ids) > 5 else ''}"
        good = ids == list(range(len(ids)))
        require("tasks", what, good, "each id of 0 to n-1 once", "Number the tasks from 0.")
        return cls(ordered)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Task: ...
    @overload
    def __getitem__(self, index: slice, /) -> TaskSet: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Task | TaskSet:
        return TaskSet(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def __repr__(self) -> str:
        arrivals_s = [task.arrival_s for task in self] or [0.0]
        models = len({task.workload.model for task in self})
        last_s = max(arrivals_s)
        arrivals = f"arriving {display.time_span(min(arrivals_s), last_s)}" if last_s else "at once"
        return f"TaskSet({len(self)} tasks of {models} models, {arrivals})"

    def _repr_html_(self) -> str:
        return html_table(self, self.to_frame())

    def to_frame(self) -> pd.DataFrame:
        """Return one row a task, with the columns of a task file, which `heshare.world.task_file.read_frame` reads.

        Columns beyond arrival_s are left out where all tasks have the default.
        """
        rows = [
            {
                **{"id": task.id, "workload": task.workload.model, "batch_size": task.workload.batch_size},
                **{name: getattr(task, name) for name in ("iterations", "arrival_s", "gpus")},
                "widths": " ".join(map(str, task.widths)),
                **{name: getattr(task, name) for name in ("priority", "deadline_s", "epochs")},
                **{name: getattr(task.workload, name) for name in ("precision", "engine", "phase")},
            }
            for task in self
        ]
        defaults = {"gpus": 1, "widths": "", "priority": 0, "deadline_s": math.inf, "epochs": None}
        defaults |= {"precision": DEFAULT_PRECISION, "engine": "eager", "phase": "inference"}
        same = [name for name, value in defaults.items() if all(row[name] == value for row in rows)]
        return pd.DataFrame(rows).drop(columns=same if rows else [])
