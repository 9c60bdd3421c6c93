"""Kernel traces as a compact table: which kernels an iteration launches, how long they take, the gaps between them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from heshare.errors import InputError
from heshare.files import write_atomic
from heshare.profiles.columns import PROVENANCES
from heshare.world.catalogue import gpus, models
from heshare.world.table import Header, Row, RowError, read_rows, write_rows
from heshare.world.workload import PRECISIONS, Workload

NAME_LENGTH = 100
"""Characters of a kernel's name that are kept; a longer one ends in `#` and 8 digits of its SHA-256."""

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
"""The profiler's categories of what occupies the GPU."""

_SIZE = re.compile(r"^[1-9]\d*x[1-9]\d*x[1-9]\d*$")


@dataclass(frozen=True, slots=True)
class Event:
    """One kernel (or copy) of one iteration, as the profiler saw it.

    Attributes:
        kernel: its name, shortened as `NAME_LENGTH` says.
        grid: blocks of the launch, such as `80x1x1`; empty for a copy.
        block: threads of a block, such as `256x1x1`; empty for a copy.
        start_us: when it began, us on the profiler's clock.
        duration_us: how long it ran, us.
    """

    kernel: str
    grid: str
    block: str
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One row of the table: one position of a workload's sequence of kernels, run alone with the whole GPU.

    Attributes:
        gpu: a name of `data/gpus.csv`.
        provenance: `measured`, or where else it comes from.
        workload: the model, a name of `data/workloads.csv`.
        batch_size: its inference batch size, samples.
        precision: `fp32`, `tf32` or `fp16`.
        position: its place in the iteration, from 0.
        kernels: how many an iteration has, so that a table that lost its end is noticed.
        kernel: its name, shortened as `NAME_LENGTH` says.
        grid: blocks of the launch, such as `80x1x1`; empty for a copy.
        block: threads of a block; empty for a copy.
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
        """What was traced: GPU, model, inference batch size, precision."""
        return self.gpu, self.workload, self.batch_size, self.precision


COLUMNS = tuple(field.name for field in fields(KernelRow))


def parse_trace(path: str | Path) -> tuple[Event, ...]:
    """The kernels and copies of a trace in Chrome's format (PyTorch's profiler writes it), in order of their start.

    Raises:
        InputError: no JSON, no such trace, an event without a time, or nothing ran on a GPU.
    """
    path = Path(path)
    try:
        found = json.loads(path.read_text("utf-8"))["traceEvents"]
        chosen = [one for one in found if one.get("cat") in ON_GPU and one.get("ph") == "X"]
        events = [_event(one) for one in chosen]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            file=path,
            found=f"no trace ({type(error).__name__}: {error})",
            expected="a Chrome trace with traceEvents, each kernel with name, ts and dur",
            action="Trace the workload again.",
        ) from None
    if not events:
        raise InputError(
            file=path, found="no kernels", expected="work on a GPU", action="Trace on a machine with an NVIDIA GPU."
        )
    return tuple(sorted(events, key=lambda one: one.start_us))


def summarise(
    traces: Sequence[Sequence[Event]], workload: Workload, gpu: str, *, provenance: str = "measured"
) -> tuple[KernelRow, ...]:
    """The table's rows of one workload from several iterations.

    Every iteration must launch the same kernels in the same order: positions are what repeats are averaged over. A
    minority that differs is left out and not counted in `repeats`.

    Args:
        traces: one sequence of events an iteration.
        workload: what was traced.
        gpu: a name of `data/gpus.csv`.
        provenance: where it comes from.

    Raises:
        InputError: no iterations, or no sequence that more than half of them share.
    """
    shapes = [tuple((one.kernel, one.grid, one.block) for one in trace) for trace in traces]
    common = max(shapes, key=shapes.count, default=())
    alike = [trace for trace, shape in zip(traces, shapes, strict=True) if shape == common]
    if not common or 2 * len(alike) <= len(traces):
        raise InputError(
            column="kernel",
            found=f"{len(alike)} of {len(traces)} iterations of {workload} with the same kernels in the same order",
            expected="more than half of them",
            action="Trace it again with more repeats, after a longer warm-up.",
        )
    rows = []
    for position, (kernel, grid, block) in enumerate(common):
        durations = [trace[position].duration_us for trace in alike]
        gaps = [_gap_us(trace, position) for trace in alike]
        place = (position, len(common), kernel, grid, block)
        what = (gpu, provenance, workload.model, workload.batch_size, workload.precision)
        rows.append(KernelRow(*what, *place, *_spread(durations), *_spread(gaps), len(alike)))
    return tuple(rows)


def read(path: str | Path) -> tuple[KernelRow, ...]:
    """Read a table of kernels.

    Raises:
        InputError: the first bad cell, with row and column; nothing is read then.
    """
    rows: list[KernelRow] = []
    last: Row | None = None
    for line in read_rows(path):
        if isinstance(line, RowError):
            raise line
        if isinstance(line, Header):
            line.need(COLUMNS)
            continue
        rows.append(_row(line))
        _check_position(last, line, rows)
        last = line
    if last is not None:
        _check_end(last, rows[-1])
    return tuple(rows)


def write(rows: Iterable[KernelRow], path: str | Path) -> Path:
    """Write a table of kernels, workloads in one order, each whole; read back before it takes the place of another.

    Raises:
        InputError: a row breaks the schema; nothing is written then.
    """
    ordered = sorted(rows, key=lambda one: (*one.setting, one.position))

    def put(temporary: Path) -> None:
        write_rows(temporary, COLUMNS, [astuple(one) for one in ordered])
        read(temporary)

    return write_atomic(path, put)


def _event(facts: dict[str, Any]) -> Event:
    more = facts.get("args", {})
    start_us, duration_us = float(facts["ts"]), float(facts["dur"])
    if not (math.isfinite(start_us) and math.isfinite(duration_us) and duration_us >= 0):
        raise ValueError(f"{facts['name']!r} from {start_us} us for {duration_us} us")
    return Event(_short(str(facts["name"])), _size(more.get("grid")), _size(more.get("block")), start_us, duration_us)


def _short(name: str) -> str:
    name = " ".join(name.split())
    if len(name) <= NAME_LENGTH:
        return name
    return f"{name[: NAME_LENGTH - 9]}#{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _size(found: Sequence[int] | None) -> str:
    return "x".join(str(int(one)) for one in found) if found else ""


def _gap_us(trace: Sequence[Event], position: int) -> float:
    if position + 1 == len(trace):
        return 0.0
    return trace[position + 1].start_us - trace[position].start_us - trace[position].duration_us


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation to the nanosecond, which is as fine as the profiler's clock."""
    return round(fmean(values), 3), round(stdev(values), 3) if len(values) > 1 else 0.0


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
        raise line.bad(column, "unknown", "one of " + ", ".join(known), "Correct it.")
    return text


def _launch(line: Row, column: str) -> str:
    text = line.cells[column]
    if text and not _SIZE.match(text):
        raise line.bad(column, "no size", "three whole numbers such as 80x1x1, or nothing for a copy", "Correct it.")
    return text


def _check_position(last: Row | None, line: Row, rows: Sequence[KernelRow]) -> None:
    """Positions count up from 0 to the number of kernels within a workload, and a workload's rows stand together."""
    row = rows[-1]
    before = rows[-2] if len(rows) > 1 else None
    follows = before is not None and before.setting == row.setting and before.position + 1 < before.kernels
    wanted = before.position + 1 if before is not None and follows else 0
    if last is not None and before is not None and not follows:
        _check_end(last, before)
    if row.position != wanted:
        raise line.bad("position", "out of order", f"{wanted}", "Keep each workload's rows whole, together, in order.")
    if row.kernels <= row.position or (before is not None and follows and before.kernels != row.kernels):
        raise line.bad("kernels", "another count", "the same number in all rows of a workload", "Trace it again.")
    if not follows and any(one.setting == row.setting for one in rows[:-1]):
        raise line.bad("workload", "doubled", "each workload once", "Delete one of the two traces.")


def _check_end(line: Row, row: KernelRow) -> None:
    if row.position + 1 != row.kernels:
        raise line.bad("position", "no end", f"rows up to {row.kernels - 1} after it", "Trace the workload again.")
