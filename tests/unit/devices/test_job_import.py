"""Foreign tables of jobs as tasks: what cells mean, which rows are left out, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heshare as hs
from heshare.shared.errors import InputError
from heshare.shared.inputs.foreign_table import EPOCH_S, LeftOutWarning

pytestmark = pytest.mark.filterwarnings("ignore::heshare.shared.inputs.foreign_table.LeftOutWarning")

DURATION = {"arrival": "submit", "duration": "duration"}
BOTH = {"arrival": "start", "end": "end"}
PER_S = hs.iterations("resnet50:8", 1.0)
PAI = """job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
j1,worker,4.0,Terminated,1000.0,2000.0,600.0,29.3,100.0,T4
j2,tensorflow,1.0,Terminated,1100.0,1400.0,600.0,29.3,50.0,MISC
j3,PyTorchWorker,20.0,Terminated,1200.0,1300.0,600.0,29.3,25.0,T4
j4,ps,2.0,Terminated,1200.0,1300.0,600.0,29.3,,
j5,evaluator,1.0,Terminated,1300.0,1400.0,600.0,29.3,0.0,CPU
"""
COLUMNS = {"arrival": "start_time", "end": "end_time", "gpus": "plan_gpu"}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, encoding: str = "utf-8") -> Path:
        path = tmp_path / "jobs.csv"
        path.write_text(text, encoding=encoding)
        return path

    return write


def jobs(tasks: object) -> list[tuple[float, float, int]]:
    """Return (arrival, duration, GPUs) of each task."""
    return [(task.arrival_s, round(task.iterations / PER_S, 6), task.gpus) for task in tasks]


def test_instances(written) -> None:
    """GPUs are instances x whole GPUs each, and the parts of GPUs are in the report."""
    tasks = hs.import_jobs(written(PAI), {**COLUMNS, "instances": "inst_num"}, gpu_unit=100, skip_bad=True)
    assert jobs(tasks) == [(0.0, 1000.0, 4), (100.0, 300.0, 1), (200.0, 100.0, 20)]
    assert tasks.report.gpu_hours * 3600 == pytest.approx(6_300)
    assert tasks.report.asked_gpu_hours * 3600 == pytest.approx(4_650)
    assert jobs(hs.import_jobs(written(PAI), recipe="alibaba-2020")) == jobs(tasks)
    with pytest.warns(LeftOutWarning, match='"instances": "inst_num"'):
        hs.import_jobs(written(PAI), COLUMNS, gpu_unit=100, skip_bad=True)


@pytest.mark.parametrize("skip_bad", [False, True])
def test_no_gpu(written, skip_bad: bool) -> None:
    """Jobs of no GPU are left out, counted and told."""
    path = written("submit,duration,gpus\n0,600,0\n10,60,2\n20,60,0.0\n")
    with pytest.warns(LeftOutWarning, match="2 x no GPU"):
        tasks = hs.import_jobs(path, {**DURATION, "gpus": "gpus"}, skip_bad=skip_bad)
    assert jobs(tasks) == [(0.0, 60.0, 2)]
    assert repr(tasks).endswith(str(tasks.report))


KINDS = {
    "compact seconds": ("20200930115959,20200930120001", "20200930120000,20200930130000", (1.0, 2.0, 3600.0)),
    "compact days": ("20200930,20201001", "20201101,20201102", (32 * 86_400.0, 86_400.0, 86_400.0)),
    "floats": ("20200930115959.0,20200930120001.0", "20200930120000.0,20200930130000.0", (1.0, 2.0, 3600.0)),
    "epoch s": ("1601510400,1601514000", "1601510460.5,1601514060.5", (60.5, 3600.0, 3600.0)),
    "epoch ms": ("1601510400000,1601514000000", "1601510460000,1601514060000", (60.0, 3600.0, 3600.0)),
    "epoch us": ("1601510400000000,1601514000000000", "1601510460000000,1601514060000000", (60.0, 3600.0, 3600.0)),
    "dates": ("2023-11-16 18:17:03.9799600,2023-11-16 18:18", "2023/11/16 18:17:04,2023-11-16T18:18:00", None),
    "zones": (
        "2024-05-10 00:00:00.5+00:00,2024-05-10 01:00:01+01:00",
        "2024-05-10 00:00:01Z,2024-05-10 01:00 UTC",
        None,
    ),
    "seconds": ("5,7.5", "9.25,100", (4.25, 2.5, 90.75)),
    "a long trace": ("20200929,20200931", "3,20200931", (20_200_926.0, 2.0, 20_200_928.0)),
}


@pytest.mark.parametrize(("first", "second", "right"), KINDS.values(), ids=KINDS)
def test_kinds(written, first: str, second: str, right: tuple[float, ...] | None) -> None:
    """Moments are recognised by their form and size, and counted from the first arrival."""
    early, late = jobs(hs.import_jobs(written(f"start,end\n{first}\n{second}\n"), BOTH))
    if right is None:
        right = (0.02004, 56.02004, 56.0) if "2023" in first else (0.5, 0.5, 3599.0)
    durations = (early[1], late[1]) if first != "20200929,20200931" else (late[1], early[1])
    assert (late[0], *durations) == pytest.approx(right, abs=1e-6)


@given(st.floats(EPOCH_S[0], EPOCH_S[1] - 1e6), st.lists(st.floats(0, 1e5), min_size=2, max_size=5), st.integers(0, 3))
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=25)
def test_epochs(tmp_path: Path, begin_s: float, after_s: list[float], unit: int) -> None:
    """Moments since 1970 give the same arrivals in s, ms, us and ns."""
    path = tmp_path / "jobs.csv"
    rows = [f"{round((begin_s + each) * 1000) * 10 ** (3 * unit - 3)},60" for each in after_s]
    path.write_text("\n".join(["submit,duration", *rows]) + "\n")
    found = [task.arrival_s for task in hs.import_jobs(path, DURATION)]
    assert found == pytest.approx(sorted(each - min(after_s) for each in after_s), abs=2.0 if unit == 0 else 2e-3)


BAD_MOMENTS = {
    "0 far before all": ("0,494319,495000,495100", "0 for an unknown moment"),
    "negative": ("-7157,0,10,20", "negative moment"),
    "0 among epochs": ("1601510400,0,1601510460", "0 for an unknown moment"),
    "1970": ("1601510400,86400,1601510460", "as in most rows"),
    "2200": ("1601510400,7258118400,1601510460", "outside 2000 to 2100"),
    "0001": ("2020-09-30 12:00:00,0001-01-01 00:00:00,2020-09-30 12:00:05", "outside 2000 to 2100"),
    "2262": ("2020-09-30 12:00:00,2262-12-31 00:00:00,2020-09-30 12:00:05", "outside 2000 to 2100"),
    "seconds among ms": ("1601510400000,1601510400,1601510460000", "as in most rows"),
    "a date among seconds": ("0,2020-09-30 12:00:00,10", "as in most rows"),
    "a day among times": ("2020-09-30 12:00:00,2020-09-30,2020-09-30 12:01:00", "as in most rows"),
    "a zone among none": ("2020-09-30 12:00:00,2020-09-30 12:00:00+02:00,2020-09-30 12:01:00", "as in most rows"),
    "no such day": ("20200930,20200931,20201001", "as in most rows"),
    "empty": ("0,,10", "empty cell"),
    "text": ("0,soon,10", "no moment"),
    "day first": ("0,30/09/2020,10", "no moment"),
    "nan": ("0,nan,10", "no moment"),
    "inf": ("0,inf,10", "no moment"),
}


@pytest.mark.parametrize(("moments", "reason"), BAD_MOMENTS.values(), ids=BAD_MOMENTS)
def test_bad_moments(written, moments: str, reason: str) -> None:
    """A placeholder, or a moment of another kind, is refused with its row, or left out and counted."""
    lines = [f"{each},60" for each in moments.split(",")]
    path = written("\n".join(["submit,duration", *lines]))
    with pytest.raises(InputError, match=r"jobs.csv, row \d, column submit"):
        hs.import_jobs(path, DURATION)
    tasks = hs.import_jobs(path, DURATION, skip_bad=True)
    (told,) = tasks.report.left_out
    assert reason in told
    assert len(tasks) == len(lines) - 1


def test_zeros(written) -> None:
    """0 among seconds is a moment, an unknown one, or one that is told."""
    stands_off = written("submit,duration\n0,60\n5000,60\n5100,60\n6000,60\n")
    with pytest.warns(LeftOutWarning, match="1 x 0 in submit taken as a moment, 5,000 s before"):
        tasks = hs.import_jobs(stands_off, DURATION)
    assert len(tasks) == 4
    assert len(hs.import_jobs(stands_off, DURATION, zero="unknown", skip_bad=True)) == 3
    assert hs.import_jobs(stands_off, DURATION, zero="moment").report.notes == ()
    from_begin = hs.import_jobs(written("submit,duration\n0,60\n10,60\n25,60\n"), DURATION)
    assert (len(from_begin), from_begin.report.notes) == (3, ())
    with pytest.raises(InputError, match="argument zero"):
        hs.import_jobs(stands_off, DURATION, zero="never")


def test_two_scales(written) -> None:
    """A date and a number of seconds are not compared."""
    with pytest.raises(InputError, match="where start has dates"):
        hs.import_jobs(written("start,end\n2020-09-30 12:00:00,60\n2020-09-30 12:00:01,90\n"), BOTH)


DURATIONS = {
    "seconds": ("90.5", None, 90.5),
    "clock": ("01:30:05", None, 5405.0),
    "Slurm": ("2-01:00:00", None, 176_400.0),
    "ms": ("1500", "ms", 1.5),
    "min": ("3", "min", 180.0),
    "h": ("2", "h", 7200.0),
}


@pytest.mark.parametrize(("text", "unit", "right"), DURATIONS.values(), ids=DURATIONS)
def test_durations(written, text: str, unit: str | None, right: float) -> None:
    """Durations are seconds, in a unit that is stated, or hours, minutes and seconds."""
    units = {} if unit is None else {"duration": unit}
    assert jobs(hs.import_jobs(written(f"submit,duration\n0,{text}\n"), DURATION, units=units))[0][1] == right


@pytest.mark.parametrize(
    ("text", "reason"),
    [("0", "zero"), ("-5", "negative"), ("", "empty"), ("1e13", "too large"), ("long", "no dur"), ("nan", "no dur")],
)
def test_bad_durations(written, text: str, reason: str) -> None:
    """Durations of zero, negative and missing ones are refused, or left out and counted."""
    path = written(f"submit,duration\n0,60\n5,{text}\n30,60\n")
    with pytest.raises(InputError, match="row 3, column duration"):
        hs.import_jobs(path, DURATION)
    tasks = hs.import_jobs(path, DURATION, skip_bad=True)
    assert [reason in told for told in tasks.report.left_out] == [True]
    assert jobs(tasks) == [(0.0, 60.0, 1), (30.0, 60.0, 1)]


@pytest.mark.parametrize("name", ["runtime_ms", "run time (min)", "elapsed [hours]"])
def test_named_unit(written, name: str) -> None:
    """A column whose name has a unit other than seconds is asked about."""
    path, columns = written(f"submit,{name}\n0,60\n"), {"arrival": "submit", "duration": name}
    with pytest.raises(InputError, match="State the unit"):
        hs.import_jobs(path, columns)
    assert jobs(hs.import_jobs(path, columns, units={"duration": "s"}))[0][1] == 60.0
    path = written("submit_ms,duration\n0,60\n60000,60\n")
    with pytest.raises(InputError, match="State the unit"):
        hs.import_jobs(path, {"arrival": "submit_ms", "duration": "duration"})
    tasks = hs.import_jobs(path, {"arrival": "submit_ms", "duration": "duration"}, units={"arrival": "ms"})
    assert tasks[1].arrival_s == 60.0


ROWS = {
    "cells": ("0,60,1\n10,60,1,\n5\n20,60,1\n", {"wrong number of cells": 2}),
    "bounds": ("0,60,1\n10,1e13,1\n20,60,1000000\n30,60,1\n", {"duration: too large": 1, "gpus: too large": 1}),
    "gpus": ("0,60,-1\n1,60,many\n2,60,nan\n3,60,1\n", {"gpus": 3}),
}


@pytest.mark.parametrize(("rows", "left_out"), ROWS.values(), ids=ROWS)
def test_bad_rows(written, rows: str, left_out: Mapping[str, int]) -> None:
    """Rows with a comma too much, and values beyond their bounds, are refused with file and row, or left out."""
    path, columns = written("submit,duration,gpus\n" + rows), {**DURATION, "gpus": "gpus"}
    with pytest.raises(InputError, match=r"jobs.csv, row \d"):
        hs.import_jobs(path, columns)
    found = hs.import_jobs(path, columns, skip_bad=True).report.left_out
    assert sum(found.values()) == sum(left_out.values())
    assert set(left_out) <= set(found) | {name.partition(":")[0] for name in found}


def test_rounded_gpus(written) -> None:
    """A whole number of GPUs stays whole in any unit, and a start before the arrival is refused."""
    path = written("submit,duration,gpus\n0,60,1.1\n")
    assert hs.import_jobs(path, {**DURATION, "gpus": "gpus"}, gpu_unit=0.1)[0].gpus == 11
    with pytest.raises(InputError, match="row 2, column start"):
        hs.import_jobs(written("submit,start,end\n30,20,60\n"), {"arrival": "submit", "start": "start", "end": "end"})


@pytest.mark.parametrize("unit", [0, math.nan, "100", -1, math.inf, True])
def test_gpu_unit(written, unit: object) -> None:
    """A unit of GPUs is a finite number above zero."""
    with pytest.raises(InputError, match="argument gpu_unit"):
        hs.import_jobs(written("submit,duration,gpus\n0,60,100\n"), {**DURATION, "gpus": "gpus"}, gpu_unit=unit)


def test_ids(written) -> None:
    """An id that a row above has is refused, or left out."""
    path, columns = written("job,task,submit,duration\na,1,0,60\na,2,5,60\na,1,9,60\n"), {**DURATION, "id": "job"}
    with pytest.raises(InputError, match="row 3, column job"):
        hs.import_jobs(path, columns)
    assert len(hs.import_jobs(path, {**columns, "id": ("job", "task")}, skip_bad=True)) == 2


def test_order(written) -> None:
    """Rows in any order give tasks by arrival, of workloads that the table names."""
    path = written("submit,duration,what\n9,60,vgg16:4\n3,30,resnet50:8\n")
    tasks = hs.import_jobs(path, {**DURATION, "workload": "what"}, card="V100")
    assert [(task.id, task.arrival_s, str(task.workload)) for task in tasks] == [
        (0, 0.0, "resnet50:8"),
        (1, 6.0, "vgg16:4"),
    ]
    assert tasks[1].iterations == pytest.approx(hs.iterations("vgg16:4", 60.0, "V100"))


def test_drawn_workloads(written) -> None:
    """Workloads are drawn from those that are given, the same ones for a seed."""
    path = written("submit,duration\n" + "".join(f"{second},60\n" for second in range(40)))
    draws = [hs.import_jobs(path, DURATION, workloads=["gpt2:1", "gpt2:4"], seed=seed) for seed in (3, 3, 4)]
    assert draws[0] == draws[1] != draws[2]
    assert {str(task.workload) for task in draws[0]} == {"gpt2:1", "gpt2:4"}


@pytest.mark.parametrize(
    ("columns", "text", "message"),
    [
        ({"arival": "a"}, "a\n", "Did you mean 'arrival'"),
        ({"arrival": "a"}, "a\n", "one of duration, end"),
        ({"arrival": "a", "end": "a", "duration": "a"}, "a\n", "one of duration, end"),
        ({"arrival": "a", "duration": "a", "start": "a"}, "a\n", "start together with end"),
        ({"arrival": "a", "duration": "a", "instances": "a"}, "a\n", "GPUs of an instance"),
        ({"arrival": "x", "duration": "b"}, "a,b\n", "column x"),
        ({"arrival": None, "duration": "b"}, "a,b\n", "columns, arrival"),
        ({"arrival": "a", "duration": "b"}, "a,b\n20010101,5\n20900101,5\n", "row 3, column a"),
        ({"arrival": "a", "end": "b"}, "a,b\n60,1\n", "row 2, column b"),
        ({"arrival": "a", "duration": "b", "workload": "c"}, "a,b,c\n1,5,x\n", "row 2, column c"),
        ({"arrival": "a", "duration": "b"}, "a,b\n", "no job"),
        ({"arrival": "a", "duration": "b"}, "a,a,b\n", "the column twice"),
        ({"arrival": "a", "duration": "b"}, "", "an empty file"),
    ],
)
def test_refusals(columns: dict[str, str], text: str, message: str, written) -> None:
    """Bad mappings, columns and rows are named."""
    with pytest.raises(InputError, match=message):
        hs.import_jobs(written(text), columns)


def test_unreadable(written, tmp_path: Path) -> None:
    """UTF-16, a missing file and a folder are refused."""
    for path, message in (
        (written("submit,duration\n0,60\n", "utf-16"), "UTF-16"),
        (tmp_path / "absent.csv", "no such file"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            hs.import_jobs(path, DURATION)
    with pytest.raises(InputError, match="either columns or a recipe"):
        hs.import_jobs(written(PAI), COLUMNS, recipe="alibaba-2020")
    with pytest.raises(InputError, match="argument units"):
        hs.import_jobs(written(PAI), COLUMNS, units={"gpus": "ms"})
