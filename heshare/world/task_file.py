"""Task sets as CSV files with the columns id, workload, batch_size, iterations, arrival_s.

Optional columns are precision, engine, phase, gpus, widths (numbers of GPUs with spaces between), priority, deadline_s,
epochs. An empty cell is the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.shared import files
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_BATCH, MOST_GPUS, parse_whole
from heshare.shared.inputs.csv_table import Header, Row, RowError, read_table, write_rows
from heshare.world.catalogue import memory_mib, models
from heshare.world.task import Task
from heshare.world.workload import ENGINES, PHASES, PRECISIONS, Workload

COLUMNS = ("id", "workload", "batch_size", "iterations", "arrival_s")
CHOICES = {"precision": PRECISIONS, "engine": ENGINES, "phase": PHASES}
OPTIONAL = (*CHOICES, "gpus", "widths", "priority", "deadline_s", "epochs")
_DEFAULT = Task(0, Workload("", 1), 1.0)


def write_tasks(path: str | Path, tasks: Sequence[Task]) -> Path:
    """Write a task set; an optional column is written only if a task differs from its default."""
    optional = {name: [_cell(task, name) for task in tasks] for name in OPTIONAL}
    optional = {name: cells for name, cells in optional.items() if set(cells) - {_cell(_DEFAULT, name)}}
    rows = [
        (
            task.id,
            task.workload.model,
            task.workload.batch_size,
            repr(float(task.iterations)),
            repr(float(task.arrival_s)),
            *[column[index] for column in optional.values()],
        )
        for index, task in enumerate(tasks)
    ]
    return files.write_atomic(path, lambda temporary: write_rows(temporary, (*COLUMNS, *optional), rows))


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    r"""Return the task set of a file.

    Args:
        path: a CSV file with the columns `id` (0, 1, 2, ... in order), `workload` (a model, see `hs.models()`),
            `batch_size`, `iterations`, `arrival_s` and any of `OPTIONAL`.

    Raises:
        InputError: no such file, a missing or unknown column, a bad cell, an unknown workload, or no task at all.

    Example:
        >>> import tempfile
        >>> import heshare as hs
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("id,workload,batch_size,iterations,arrival_s\n0,resnet50,8,1000,0\n")
        ...     file.flush()
        ...     [str(task.workload) for task in hs.read_tasks(file.name)]
        ['resnet50:8']
    """
    path = files.as_path(path)
    tasks = tuple(_task(row, index) for index, row in enumerate(read_table(path, COLUMNS, OPTIONAL)))
    action = "Add a task, or check that this is the right file."
    require(None, "no task", bool(tasks), "at least one row below the header", action, file=path)
    return tasks


def read_frame(frame: pd.DataFrame) -> tuple[Task, ...]:
    """Return the task set of a frame with the columns of a task file, as `read_tasks`; messages count rows from 0."""
    file = Path("DataFrame")
    columns = tuple(map(str, frame.columns))
    doubled = next((name for name in columns if columns.count(name) > 1), None)
    require(doubled, "the column twice", doubled is None, "each column once", "Remove or rename one.", file=file)
    Header(file, columns).require(COLUMNS, OPTIONAL)
    rows = [
        Row(file, line, dict(zip(columns, map(_text, values), strict=True)))
        for line, values in enumerate(frame.itertuples(index=False, name=None))
    ]
    if not rows:
        raise InputError("no task", "at least one row", "Add a task.", file=file)
    return tuple([_task(row, index) for index, row in enumerate(rows)])


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if str(value) in ("None", "nan", "<NA>", "inf") else str(value).strip()


def _cell(task: Task, column: str) -> object:
    value = getattr(task.workload if column in CHOICES else task, column)
    return " ".join(map(str, value)) if column == "widths" else "" if value in (None, math.inf) else value


def _task(row: Row, index: int) -> Task:
    if row.whole("id") != index:
        raise row.error("id", "not in sequence", f"{index}: ids count 0, 1, 2, ... in order", "Number the rows again.")
    workload = _workload(row)
    optional: dict[str, Callable[[], Any]] = {
        "gpus": lambda: row.whole("gpus", least=1),
        "widths": lambda: _widths(row),
        "priority": lambda: row.whole("priority"),
        "deadline_s": lambda: row.number_of("deadline_s", above=True),
        "epochs": lambda: row.whole("epochs", least=1),
    }
    values = {name: read() for name, read in optional.items() if row.cells.get(name)}
    try:
        return Task(index, workload, row.number_of("iterations", above=True), row.number_of("arrival_s"), **values)
    except RowError:
        raise
    except InputError as error:
        raise row.error(
            error.column or "id", "out of range", error.expected or "another", "Correct the row."
        ) from error


def _workload(row: Row) -> Workload:
    precision, engine, phase = (
        _one_of(row, name, names) if row.cells.get(name) else names[0] for name, names in CHOICES.items()
    )
    training = phase == PHASES[1]
    model = row.text("workload") if training else _one_of(row, "workload", tuple(models()))
    workload = Workload(model, row.whole("batch_size", least=1, most=MOST_BATCH), precision, engine, phase)
    if training:
        try:
            memory_mib(workload)
        except InputError as error:
            raise row.error(
                "workload", "unknown name", error.expected or "a training workload", "Choose one."
            ) from error
    return workload


def _widths(row: Row) -> tuple[int, ...]:
    try:
        parts = row.cells["widths"].split()
        widths = tuple(parse_whole(part, "widths", least=1, most=MOST_GPUS) for part in parts)
    except InputError:
        widths = (0,)
    if any(width < 1 for width in widths):
        raise row.error("widths", "not numbers of GPUs", "whole numbers of at least 1, spaces between", "Correct them.")
    return widths


def _one_of(row: Row, column: str, names: Sequence[str]) -> str:
    value = row.text(column)
    if value not in names:
        raise row.error(column, "unknown name", "one of " + ", ".join(names), "Choose one of them.")
    return value
