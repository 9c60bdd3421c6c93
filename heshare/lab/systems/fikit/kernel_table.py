"""Table of kernel traces: the kernels of an iteration, their durations and the gaps between them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from pathlib import Path

from heshare.profiles.schema import PROVENANCES
from heshare.shared.files import write_atomic
from heshare.shared.inputs.csv_table import Row, read_table, write_rows
from heshare.world.catalogue import gpus, models
from heshare.world.workload import PRECISIONS

NAME = "kernels.csv"
"""The file of kernels of a recorded profile."""
NAME_LENGTH = 100
"""Characters of a kernel's name that are kept; a longer one ends in `#` and 8 digits of its SHA-256."""

_SIZE = re.compile(r"^[1-9]\d*x[1-9]\d*x[1-9]\d*$")


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One row of the table: one position of a workload's sequence of kernels, run alone with the whole GPU.

    Attributes:
        provenance: `measured`, or another one of `PROVENANCES`.
        workload: the model, a name of `data/workloads.csv`.
        position: its place in the iteration, from 0.
        kernels: how many an iteration has; it shows whether a table is complete.
        kernel, grid, block: as in `KernelEvent`.
        duration_us: how long it ran, us, mean over the repeats.
        duration_std_us: the sample standard deviation, us (0 for one repeat).
        gap_us: from its end to the beginning of the next, us, mean; below 0 where the two overlap; 0 for the last.
        gap_std_us: the sample standard deviation, us (0 for one repeat).
        repeats: iterations traced.
    """

    gpu: str
    provenance: str
    workload: str
    batch_size: int
    precision: str
    position: int
    kernels: int
    kernel: str
    grid: str
    block: str
    duration_us: float
    duration_std_us: float
    gap_us: float
    gap_std_us: float
    repeats: int

    @property
    def setting(self) -> tuple[str, str, int, str]:
        return self.gpu, self.workload, self.batch_size, self.precision


COLUMNS = tuple(field.name for field in fields(KernelRow))


def read(path: str | Path) -> tuple[KernelRow, ...]:
    lines = list(read_table(path, COLUMNS))
    rows = tuple(map(_row, lines))
    seen = set[tuple[str, str, int, str]]()
    for setting, pairs in groupby(zip(lines, rows, strict=True), key=lambda pair: pair[1].setting):
        trace = list(pairs)
        _check_trace(trace, doubled=setting in seen)
        seen.add(setting)
    return rows


def write(rows: Iterable[KernelRow], path: str | Path) -> Path:
    """Write a table of kernels, sorted by workload; it is read back before it replaces another one."""
    ordered = sorted(rows, key=lambda row: (*row.setting, row.position))

    def write_checked(temporary: Path) -> None:
        write_rows(temporary, COLUMNS, list(map(astuple, ordered)))
        read(temporary)

    return write_atomic(path, write_checked)


def _row(line: Row) -> KernelRow:
    return KernelRow(
        gpu=_known(line, "gpu", tuple(gpus())),
        provenance=_known(line, "provenance", PROVENANCES),
        workload=_known(line, "workload", tuple(models())),
        batch_size=line.whole("batch_size", least=1),
        precision=_known(line, "precision", PRECISIONS),
        position=line.whole("position"),
        kernels=line.whole("kernels", least=1),
        kernel=line.text("kernel", "a kernel's name"),
        grid=_launch(line, "grid"),
        block=_launch(line, "block"),
        duration_us=line.number_of("duration_us"),
        duration_std_us=line.number_of("duration_std_us"),
        gap_us=line.number_of("gap_us", least=-1e9),
        gap_std_us=line.number_of("gap_std_us"),
        repeats=line.whole("repeats", least=1),
    )


def _known(line: Row, column: str, known: Sequence[str]) -> str:
    text = line.text(column)
    if text not in known:
        raise line.error(column, "unknown", "one of " + ", ".join(known), "Correct it.")
    return text


def _launch(line: Row, column: str) -> str:
    text = line.cells[column]
    if text and not _SIZE.match(text):
        raise line.error(column, "no size", "three whole numbers such as 80x1x1, or nothing for a copy", "Correct it.")
    return text


def _check_trace(trace: Sequence[tuple[Row, KernelRow]], *, doubled: bool) -> None:
    count = trace[0][1].kernels
    for position, (line, row) in enumerate(trace):
        if doubled or (position and not row.position):
            raise line.error("workload", "doubled", "each workload once", "Delete one of the two traces.")
        if row.position != position or position >= count:
            action = "Keep each workload's rows complete, together and in order."
            raise line.error("position", "out of order", f"{position}, below {count}", action)
        if row.kernels != count:
            expected = "the same number in all rows of a workload"
            raise line.error("kernels", "another count", expected, "Trace it again.")
    if len(trace) != count:
        expected = f"rows up to {count - 1} after it"
        raise trace[-1][0].error("position", "no end", expected, "Trace the workload again.")
