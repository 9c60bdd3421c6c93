"""Task files: reading returns the tasks that were written; errors of bad cells and columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.shared.errors import InputError
from heshare.world.task import Task
from heshare.world.task_file import read_tasks, write_tasks
from heshare.world.workload import Workload

HEADER = "id,workload,batch_size,iterations,arrival_s"
GOOD = "0,resnet50,8,100,0"


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "tasks.csv"
    path.write_text("\n".join((*lines, "")), encoding="utf-8")
    return path


def test_optional_columns(tmp_path: Path) -> None:
    """Optional columns are written only where a task differs, and read again."""
    tasks = (
        Task(0, Workload("vgg16", 4), 5.0, gpus=8, widths=(4, 16), priority=2),
        Task(1, Workload("vgg16", 4), 5.0, 7.5, deadline_s=90.25, epochs=3),
    )
    path = write_tasks(tmp_path / "tasks.csv", tasks)
    assert read_tasks(path) == tasks
    assert path.read_text(encoding="utf-8").splitlines()[0] == HEADER + ",gpus,widths,priority,deadline_s,epochs"
    path = write_tasks(path, (Task(0, Workload("vgg16", 4), 5.0, epochs=2),))
    assert path.read_text(encoding="utf-8").splitlines()[0] == HEADER + ",epochs"


def test_order_of_columns(tmp_path: Path) -> None:
    """Columns may be in any order, and optional cells empty."""
    path = written(tmp_path, "arrival_s,id,iterations,workload,batch_size,engine", "2.5,0,7,vgg19,4,")
    assert read_tasks(path) == (Task(0, Workload("vgg19", 4), 7.0, 2.5),)


@pytest.mark.parametrize(
    ("line", "column", "found"),
    [
        ("2,resnet50,8,100,0", "id", "'2'"),
        ("1,resnet5,8,100,0", "workload", "'resnet5'"),
        ("1,,8,100,0", "workload", "an empty cell"),
        ("1,resnet50,8.5,100,0", "batch_size", "'8.5'"),
        ("1,resnet50,8,0,0", "iterations", "'0'"),
        ("1,resnet50,8,100,-1", "arrival_s", "'-1'"),
        ("1,resnet50,8,100", None, "4 cells"),
    ],
    ids=str,
)
def test_bad_cells(tmp_path: Path, line: str, column: str | None, found: str) -> None:
    """A bad cell is named by row and column."""
    path = written(tmp_path, HEADER, GOOD, line)
    with pytest.raises(InputError) as caught:
        read_tasks(path)
    assert (caught.value.file, caught.value.row, caught.value.column) == (str(path), 3, column)
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((), "an empty file"),
        ((HEADER,), "no task"),
        ((HEADER.replace("iterations", "precison"), GOOD), "row 1, column iterations"),
        ((f"{HEADER},gpus", f"{GOOD},0"), "row 2, column gpus"),
        ((f"{HEADER},gpus", f"{GOOD},2.5"), "row 2, column gpus"),
        ((f"{HEADER},widths", f"{GOOD},2;4"), "row 2, column widths"),
        ((f"{HEADER},priority", f"{GOOD},-1"), "row 2, column priority"),
        ((f"{HEADER},deadline_s", f"{GOOD},0"), "row 2, column deadline_s"),
        ((f"{HEADER},epochs", f"{GOOD},0"), "row 2, column epochs"),
        ((f"{HEADER},phase", f"{GOOD},sleep"), "row 2, column phase"),
        ((f"{HEADER},precison", f"{GOOD},fp16"), "column precison"),
        ((f"{HEADER},deadline_s", "0,resnet50,8,100,60,59"), "row 2, column deadline_s"),
        ((f"{HEADER},phase", f"{GOOD},training"), "row 2, column workload"),
    ],
)
def test_refusals(tmp_path: Path, lines: tuple[str, ...], found: str) -> None:
    """No tasks, other columns, bad optional cells, early deadlines and trainings without a record are refused."""
    with pytest.raises(InputError, match=found):
        read_tasks(written(tmp_path, *lines))
