"""Task sets as CSV files, so that anybody can bring their own: id, workload, batch_size, iterations, arrival_s."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heshare import files
from heshare.errors import InputError
from heshare.world.catalogue import models
from heshare.world.table import Header, Row, RowError, read_rows, write_rows
from heshare.world.task import Task
from heshare.world.workload import ENGINES, PRECISIONS, Workload

COLUMNS = ("id", "workload", "batch_size", "iterations", "arrival_s")
OPTIONAL = {"precision": PRECISIONS, "engine": ENGINES}


def write_tasks(path: str | Path, tasks: Sequence[Task]) -> Path:
    """Write a task set; reading it again gives equal tasks.

    The columns `precision` and `engine` are written only if a task differs from the defaults.
    """
    plain = all((t.workload.precision, t.workload.engine) == (PRECISIONS[0], ENGINES[0]) for t in tasks)
    columns = COLUMNS if plain else (*COLUMNS, *OPTIONAL)
    cells = [
        (
            task.id,
            task.workload.model,
            task.workload.batch_size,
            repr(float(task.iterations)),
            repr(float(task.arrival_s)),
            task.workload.precision,
            task.workload.engine,
        )[: len(columns)]
        for task in tasks
    ]
    return files.write_atomic(path, lambda temporary: write_rows(temporary, columns, cells))


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    """Read a task set.

    Args:
        path: a CSV file with the columns `id` (0, 1, 2, ... in order), `workload` (a model of Table IV),
            `batch_size`, `iterations`, `arrival_s` and, if wanted, `precision` and `engine`.

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
    return Task(
        index,
        Workload(
            _one_of(row, "workload", tuple(models())),
            row.whole("batch_size", least=1),
            *(_one_of(row, name, known) for name, known in OPTIONAL.items()),
        ),
        row.number_of("iterations", above=True),
        row.number_of("arrival_s"),
    )


def _one_of(row: Row, column: str, known: Sequence[str]) -> str:
    if column in OPTIONAL and not row.cells.get(column):
        return known[0]
    value = row.text(column)
    if value not in known:
        raise row.bad(column, "unknown name", "one of " + ", ".join(known), "Choose one of them.")
    return value
