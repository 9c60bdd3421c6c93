"""Importer of job traces: the columns of a foreign table as arrivals, durations and numbers of GPUs."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from heshare.shared.display import found
from heshare.shared.errors import InputError, require, unknown
from heshare.shared.inputs.bounds import MOST_GPUS, MOST_ITERATIONS, MOST_S
from heshare.shared.inputs.foreign_table import ACTION, UNITS_S, ForeignTable, ImportReport, columns_of, read_foreign
from heshare.world.catalogue import resident
from heshare.world.recipes import KEYS, Columns, Recipe, recipe
from heshare.world.workload import Workload

SIZES = ("duration", "end", "iterations")
ZEROS = ("judge", "moment", "unknown")
_TIMES = ("arrival", "start", "duration", "end")
_INSTANCES = ("inst_num", "instance_num", "num_instances", "instances", "replicas")


@dataclass(frozen=True)
class JobTable:
    """The jobs of a trace.

    Attributes:
        frame: a row a job, by arrival: arrival_s, from the first one on; gpus, whole; size, s or iterations; workload,
            a `Workload`, if the trace names them.
        sized_in: `duration` or `iterations`.
        report: what was read; its GPU hours are those of durations.
    """

    frame: pd.DataFrame
    sized_in: str
    report: ImportReport


def read_jobs(
    path: str | Path,
    columns: Columns | str,
    *,
    gpu_unit: float | None = None,
    units: Mapping[str, str] | None = None,
    zero: str | None = None,
    skip_bad: bool | None = None,
    most_gpus: int | None = None,
) -> JobTable:
    """Return the jobs of a trace; arguments and errors as `heshare.devices.job_import.import_jobs`.

    `columns` may be the name of a recipe. A job for more than `most_gpus` GPUs is left out and counted.
    """
    good = isinstance(path, str | Path)
    require("path", found(path), good, "a CSV file", "Write it there with to_csv.")
    chosen = recipe(columns) if isinstance(columns, str) else Recipe(_checked_columns(columns))
    unit = _checked_gpu_unit(chosen.gpu_unit if gpu_unit is None else gpu_unit)
    stated = _checked_units(units or {})
    meaning = zero or chosen.zero
    require("zero", found(zero), meaning in ZEROS, " or ".join(ZEROS), "Choose one of them.")
    # A published trace has such rows; a table of one's own has them by mistake.
    skip = isinstance(columns, str) if skip_bad is None else skip_bad

    table = _open(Path(path), chosen, skip_bad=skip)
    named = {key: name for key, name in chosen.columns.items() if isinstance(name, str)}
    _refuse_doubled_ids(table, chosen.columns.get("id", ()))
    _read_gpus(table, named, unit, most_gpus, no_gpu=chosen.no_gpu)
    for key in ("arrival", "start", "end"):
        if key in named:
            table.read_moments_s(key, named[key], stated.get(key), meaning)
    late = table.parsed["arrival"] - table.parsed["arrival"].min() > MOST_S
    table.refuse(late, named["arrival"], "too late", f"at most {MOST_S:g} s after the first arrival", ACTION)
    sized_in = _read_sizes(table, named, stated.get("duration"))
    _read_workloads(table, named.get("workload"), chosen)
    table.require_rows()

    frame = table.parsed.rename(columns={"arrival": "arrival_s"})
    frame = frame.sort_values("arrival_s", kind="stable")
    hours = {
        name: float((frame["size"] * frame[of]).sum()) / 3600.0
        for name, of in (("gpu_hours", "gpus"), ("asked_gpu_hours", "asked"))
        if sized_in == "duration"
    }
    report = table.report(frame["arrival_s"], **hours)
    frame["arrival_s"] -= frame["arrival_s"].iloc[0]
    return JobTable(frame[["arrival_s", "size", "gpus", "workload"]].reset_index(drop=True), sized_in, report)


def _checked_columns(columns: Mapping[str, str | tuple[str, ...]]) -> Columns:
    for key in columns:
        if key not in KEYS:
            raise unknown(key, KEYS, column="columns")
        name = columns[key]
        names = name if key == "id" and isinstance(name, tuple) else (name,)
        good = all(isinstance(each, str) and each for each in names)
        require(f"columns, {key}", found(name), good, "the name of a column", "Correct it.")
    size = [key for key in SIZES if key in columns]
    good = "arrival" in columns and len(size) == 1
    expected = f"arrival and one of {', '.join(SIZES)}"
    require("columns", ", ".join(columns), good, expected, "Name the file's columns, or a recipe.")
    good = "start" not in columns or size == ["end"]
    require("columns", "start without end", good, "start together with end", "Name both, or neither.")
    good = "instances" not in columns or "gpus" in columns
    require("columns", "instances without gpus", good, "the GPUs of an instance as well", "Name both, or neither.")
    return columns


def _checked_gpu_unit(unit: object) -> float:
    good = isinstance(unit, int | float) and not isinstance(unit, bool) and 0 < unit < math.inf
    require("gpu_unit", found(unit), good, "a finite number above zero, such as 100 for percent", "Correct it.")
    return float(unit)  # type: ignore[arg-type]


def _checked_units(units: Mapping[str, str]) -> Mapping[str, str]:
    for key, unit in units.items():
        good = key in _TIMES and unit in UNITS_S
        expected = f"one of {', '.join(_TIMES)} with one of {', '.join(UNITS_S)}"
        require("units", f"{key}: {unit}", good, expected, 'Write it like {"duration": "ms"}.')
    return units


def _open(path: Path, chosen: Recipe, *, skip_bad: bool) -> ForeignTable:
    if chosen.jobs is not None:
        return ForeignTable(path, chosen.jobs(path), skip_bad=skip_bad)
    headers = chosen.headers
    beside = path.with_suffix(".header")
    if headers and beside.is_file():
        headers = (columns_of(beside),)
    listed = [[name] if isinstance(name, str) else list(name) for name in chosen.columns.values()]
    names = list(dict.fromkeys(name for each in listed for name in each))
    return read_foreign(path, names, headers=headers, delimiter=chosen.delimiter, skip_bad=skip_bad)


def _refuse_doubled_ids(table: ForeignTable, id_columns: str | Sequence[str]) -> None:
    names = [id_columns] if isinstance(id_columns, str) else list(id_columns)
    if names:
        expected = "an id that no row above has"
        table.refuse(table.cells.duplicated(names), names[-1], "id of a row above", expected, ACTION)


def _read_gpus(
    table: ForeignTable, named: Mapping[str, str], unit: float, most_gpus: int | None, *, no_gpu: bool
) -> None:
    # Parts of a GPU count as one, in each instance; `asked` has the parts.
    if "gpus" not in named:
        table.parsed = table.parsed.assign(gpus=1, asked=1.0)
        return
    column = named["gpus"]
    counts = next((name for name in table.others if name in _INSTANCES), "")
    if counts and "instances" not in named:
        table.notes.append(
            f'{column} is taken for a whole job (if it is for each of {counts}: "instances": "{counts}")'
        )
    if no_gpu:
        table.leave_out(table.cells[column] == "", "no GPU")
    table.read_numbers("each", column, most=MOST_GPUS * unit)
    # Rounded: 1.1 in tenths of a GPU are 11 and not 11.000000000000002.
    table.parsed = table.parsed.assign(each=(table.parsed["each"] / unit).round(9), instances=1.0)
    if "instances" in named:
        table.read_numbers("instances", named["instances"], most=MOST_GPUS, whole=True)

    each, instances = table.parsed["each"], table.parsed["instances"]
    table.parsed = table.parsed.assign(gpus=np.ceil(each) * instances, asked=each * instances)
    table.leave_out(table.parsed["gpus"] == 0, "no GPU")
    expected = f"at most {MOST_GPUS} GPUs"
    table.refuse(table.parsed["gpus"] > MOST_GPUS, column, "too many GPUs", expected, ACTION)
    if most_gpus is not None:
        table.leave_out(table.parsed["gpus"] > most_gpus, f"more than the {most_gpus} GPUs of the cluster")
    table.parsed = table.parsed.astype({"gpus": int})


def _read_sizes(table: ForeignTable, named: Mapping[str, str], unit: str | None) -> str:
    if "iterations" in named:
        table.read_numbers("size", named["iterations"], above=True, most=MOST_ITERATIONS)
        return "iterations"
    if "duration" in named:
        table.read_durations_s("size", named["duration"], unit)
        return "duration"
    begin, end = "start" if "start" in named else "arrival", named["end"]
    early = table.parsed[begin] < table.parsed["arrival"]
    expected = f"a moment not before {named['arrival']}"
    table.refuse(early, named[begin], f"earlier than {named['arrival']}", expected, ACTION)
    table.parsed = table.parsed.assign(size=table.parsed["end"] - table.parsed[begin])
    expected = f"a moment after {named[begin]}"
    table.refuse(table.parsed["size"] < 0, end, f"earlier than {named[begin]}", expected, ACTION)
    table.refuse(table.parsed["size"] == 0, end, "duration of zero", expected, ACTION)
    table.refuse(table.parsed["size"] > MOST_S, end, "too large", f"at most {MOST_S:g} s", ACTION)
    return "duration"


def _read_workloads(table: ForeignTable, column: str | None, chosen: Recipe) -> None:
    known: dict[str, Workload | None] = {}
    if column is not None:
        for text in table.cells[column].unique():
            with suppress(InputError):
                known[text] = resident(chosen.workload(text)).workload
        unknown_one = ~table.cells[column].isin(list(known))
        table.refuse(unknown_one, column, "unknown workload", "a workload such as resnet50:8", ACTION)
    listed = [known[text] for text in table.cells[column]] if column else [None] * len(table.cells)
    table.parsed = table.parsed.assign(workload=pd.Series(listed, index=table.cells.index, dtype=object))


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        id: its number in the trace, by submission.
        submit_s: when it was submitted, seconds after the first job of the trace.
        duration_s: how long it ran, s.
        gpus: number of GPUs.
    """

    id: int
    submit_s: float
    duration_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class JobTrace:
    """Job trace that is held in memory.

    Attributes:
        file: the file.
        jobs: its jobs, by submission.
        left_out: number of rows left out, by reason.
        origin: the source, which results name.
    """

    file: Path
    jobs: tuple[TraceJob, ...]
    left_out: Mapping[str, int]
    origin: str = "read from a file"

    def report(self) -> ImportReport:
        """Return what was read, in one line."""
        rows = len(self.jobs) + sum(self.left_out.values())
        span_s = self.jobs[-1].submit_s - self.jobs[0].submit_s
        gpu_hours = sum(job.duration_s * job.gpus for job in self.jobs) / 3600.0
        return ImportReport(self.file, rows, len(self.jobs), self.left_out, span_s, gpu_hours)


def read_trace(path: str | Path, *, skip_bad: bool = True, most_gpus: int | None = None) -> JobTrace:
    """Return the jobs of a trace of Helios (Hu et al., SC'21), the published `cluster_log.csv` or its extract.

    Args:
        path: the file.
        skip_bad: leave bad rows out and count them; else the first one is an error.
        most_gpus: number of GPUs in the cluster; jobs for more are left out and counted.

    Raises:
        InputError: no such file, a missing column, no (good) row, or a bad row without `skip_bad`.
    """
    name = "helios-extract" if "duration_s" in columns_of(path) else "helios"
    table = read_jobs(path, name, skip_bad=skip_bad, most_gpus=most_gpus)
    values = zip(*(table.frame[name].tolist() for name in ("arrival_s", "size", "gpus")), strict=True)
    jobs = tuple(TraceJob(place, *each) for place, each in enumerate(values))
    return JobTrace(Path(path), jobs, table.report.left_out)
