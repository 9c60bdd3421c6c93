"""Task sets as CSV files, so that anybody can bring their own: id, workload, batch_size, iterations, arrival_s.

Further columns are there only where a task differs from the default: precision, engine, phase, gpus, widths (numbers
of GPUs with spaces between), priority, deadline_s, epochs. An empty cell is the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heshare import files
from heshare.errors import InputError
from heshare.world.catalogue import memory_mib, models
from heshare.world.table import Header, Row, RowError, read_rows, write_rows
from heshare.world.task import Task
from heshare.world.workload import ENGINES, PHASES, PRECISIONS, Workload

COLUMNS = ("id", "workload", "batch_size", "iterations", "arrival_s")
CHOICES = {"precision": PRECISIONS, "engine": ENGINES, "phase": PHASES}
OPTIONAL = (*CHOICES, "gpus", "widths", "priority", "deadline_s", "epochs")
_PLAIN = Task(0, Workload("", 1), 1.0)


def write_tasks(path: str | Path, tasks: Sequence[Task]) -> Path:
    """Write a task set; reading it again gives equal tasks.

    An optional column is written only if a task differs from its default.
    """
    further = {name: [_cell(task, name) for task in tasks] for name in OPTIONAL}
    further = {name: cells for name, cells in further.items() if any(cell != _cell(_PLAIN, name) for cell in cells)}
    rows = [
        (
            task.id,
            task.workload.model,
            task.workload.batch_size,
            repr(float(task.iterations)),
            repr(float(task.arrival_s)),
        )
        for task in tasks
    ]
    cells = [(*row, *[column[index] for column in further.values()]) for index, row in enumerate(rows)]
    return files.write_atomic(path, lambda temporary: write_rows(temporary, (*COLUMNS, *further), cells))


def _cell(task: Task, column: str) -> object:
    value = getattr(task.workload if column in CHOICES else task, column)
    return " ".join(map(str, value)) if column == "widths" else "" if value in (None, math.inf) else value


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    """Read a task set.

    Args:
        path: a CSV file with the columns `id` (0, 1, 2, ... in order), `workload` (a model of Table IV),
            `batch_size`, `iterations`, `arrival_s` and any of `OPTIONAL`.

    Raises:
        InputError: no such file, a missing or unknown column, a bad cell, an unknown workload, or no task at all.
    """
    tasks: list[Task] = []
    for row in read_rows(path):
        if isinstance(row, RowError):
            raise row
        if isinstance(row, Header):
            _check_columns(row)
        else:
            tasks.append(_task(row, len(tasks)))
    if not tasks:
        raise InputError(
            file=path,
            found="no task",
            expected="at least one row below the header",
            action="Add a task, or check that this is the right file.",
        )
    return tuple(tasks)


def _check_columns(header: Header) -> None:
    header.need(COLUMNS)
    strange = [name for name in header.columns if name not in (*COLUMNS, *OPTIONAL)]
    if strange:
        raise InputError(
            file=header.file,
            row=1,
            column=strange[0] or "(no name)",
            found="an unknown column",
            expected="only " + ", ".join((*COLUMNS, *OPTIONAL)),
            action="Correct its name or remove it.",
        )


def _task(row: Row, index: int) -> Task:
    if row.whole("id") != index:
        raise row.bad("id", "not in sequence", f"{index}: ids count 0, 1, 2, ... in order", "Number the rows again.")
    workload = _workload(row)
    numbers = {
        "gpus": _or(row, "gpus", lambda: row.whole("gpus", least=1)),
        "widths": tuple(_widths(row)),
        "priority": _or(row, "priority", lambda: row.whole("priority")),
        "deadline_s": _or(row, "deadline_s", lambda: row.number_of("deadline_s", above=True)),
        "epochs": _or(row, "epochs", lambda: row.whole("epochs", least=1)),
    }
    try:
        return Task(index, workload, row.number_of("iterations", above=True), row.number_of("arrival_s"), **numbers)
    except RowError:
        raise
    except InputError as error:
        raise row.bad(error.column or "id", "out of range", error.expected or "another", "Correct the row.") from error


def _workload(row: Row) -> Workload:
    """What the row runs; a training workload is one that has been recorded."""
    precision, engine, phase = (_one_of(row, name, known) for name, known in CHOICES.items())
    training = phase == PHASES[1]
    model = row.text("workload") if training else _one_of(row, "workload", tuple(models()))
    workload = Workload(model, row.whole("batch_size", least=1), precision, engine, phase)
    if training:
        try:
            memory_mib(workload)
        except InputError as error:
            raise row.bad("workload", "unknown name", error.expected or "a training workload", "Choose one.") from error
    return workload


def _or(row: Row, column: str, read: Callable[[], float]) -> Any:
    """The cell as `read` reads it, or the default where there is none."""
    return read() if row.cells.get(column) else getattr(_PLAIN, column)


def _widths(row: Row) -> list[int]:
    try:
        widths = [int(part) for part in row.cells.get("widths", "").split()]
    except ValueError:
        widths = [0]
    if any(width < 1 for width in widths):
        raise row.bad("widths", "not numbers of GPUs", "whole numbers of at least 1, spaces between", "Correct them.")
    return widths


def _one_of(row: Row, column: str, known: Sequence[str]) -> str:
    if column in CHOICES and not row.cells.get(column):
        return known[0]
    value = row.text(column)
    if value not in known:
        raise row.bad(column, "unknown name", "one of " + ", ".join(known), "Choose one of them.")
    return value
