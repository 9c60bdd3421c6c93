"""Kernel traces as a compact table: the kernels of an iteration, their durations and the gaps between them."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from heshare import files
from heshare.errors import InputError
from heshare.files import write_atomic
from heshare.gpu.worker_program.kernel_profiler import ON_GPU
from heshare.inputs.csv_table import Row, read_table, write_rows
from heshare.profiles import manifest
from heshare.profiles.schema import PROVENANCES
from heshare.world.catalogue import gpus, models
from heshare.world.workload import PRECISIONS, Workload

NAME = "kernels.csv"
"""The file of kernels beside a recorded profile."""
NAME_LENGTH = 100
"""Characters of a kernel's name that are kept; a longer one ends in `#` and 8 digits of its SHA-256."""

_SIZE = re.compile(r"^[1-9]\d*x[1-9]\d*x[1-9]\d*$")


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One kernel (or copy) of one iteration, as the profiler reports it.

    Attributes:
        kernel: its name, of at most `NAME_LENGTH` characters.
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
        provenance: `measured`, or another one of `PROVENANCES`.
        workload: the model, a name of `data/workloads.csv`.
        batch_size: its inference batch size, samples.
        precision: `fp32`, `tf32` or `fp16`.
        position: its place in the iteration, from 0.
        kernels: how many an iteration has; it shows whether a table lost its end.
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
        """GPU, model, inference batch size and precision of the trace."""
        return self.gpu, self.workload, self.batch_size, self.precision


COLUMNS = tuple(field.name for field in fields(KernelRow))


def parse_trace(path: str | Path) -> tuple[KernelEvent, ...]:
    """Return the kernels and copies of a trace in Chrome's format, which PyTorch's profiler writes, by their start.

    Raises:
        InputError: no JSON, no such trace, an event without a time, or nothing ran on a GPU.
    """
    path = Path(path)
    try:
        entries = json.loads(path.read_text("utf-8"))["traceEvents"]
        # "X" marks complete events, with a start and a duration.
        events = [_event(entry) for entry in entries if entry.get("cat") in ON_GPU and entry.get("ph") == "X"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"no trace ({type(error).__name__}: {error})",
            "a Chrome trace with traceEvents, each kernel with name, ts and dur",
            "Trace the workload again.",
            file=path,
        ) from None
    if not events:
        raise InputError("no kernels", "work on a GPU", "Trace on a machine with an NVIDIA GPU.", file=path)
    return tuple(sorted(events, key=lambda event: event.start_us))


def summarise(
    traces: Sequence[Sequence[KernelEvent]], workload: Workload, gpu: str, *, provenance: str = "measured"
) -> tuple[KernelRow, ...]:
    """Return the table's rows of one workload from several iterations, each a sequence of events.

    Every iteration must launch the same kernels in the same order, since the repeats of a position are averaged. A
    minority that differs is left out and not counted in `repeats`.

    Raises:
        InputError: no iterations, or no sequence that more than half of them share.
    """
    shapes = [tuple((event.kernel, event.grid, event.block) for event in trace) for trace in traces]
    common = max(shapes, key=shapes.count, default=())
    equal = [trace for trace, shape in zip(traces, shapes, strict=True) if shape == common]
    if not common or 2 * len(equal) <= len(traces):
        raise InputError(
            f"{len(equal)} of {len(traces)} iterations of {workload} with the same kernels in the same order",
            "more than half of them",
            "Trace it again with more repeats, after a longer warm-up.",
            column="kernel",
        )
    rows = []
    for position, (kernel, grid, block) in enumerate(common):
        durations_us = [trace[position].duration_us for trace in equal]
        gaps_us = [_gap_us(trace, position) for trace in equal]
        setting = (gpu, provenance, workload.model, workload.batch_size, workload.precision)
        launch = (position, len(common), kernel, grid, block)
        rows.append(KernelRow(*setting, *launch, *_mean_and_std(durations_us), *_mean_and_std(gaps_us), len(equal)))
    return tuple(rows)


def read(path: str | Path) -> tuple[KernelRow, ...]:
    """Return the rows of a table of kernels.

    Raises:
        InputError: the first bad cell, with row and column; nothing is read then.
    """
    lines = list(read_table(path, COLUMNS))
    rows = tuple(map(_row, lines))
    seen = set[tuple[str, str, int, str]]()
    for setting, pairs in groupby(zip(lines, rows, strict=True), key=lambda pair: pair[1].setting):
        trace = list(pairs)
        _check_trace(trace, doubled=setting in seen)
        seen.add(setting)
    return rows


def write(rows: Iterable[KernelRow], path: str | Path) -> Path:
    """Write a table of kernels, sorted by workload; it is read back before it replaces another one.

    Raises:
        InputError: a row breaks the schema; nothing is written then.
    """
    ordered = sorted(rows, key=lambda row: (*row.setting, row.position))

    def write_checked(temporary: Path) -> None:
        write_rows(temporary, COLUMNS, list(map(astuple, ordered)))
        read(temporary)

    return write_atomic(path, write_checked)


def _event(entry: dict[str, Any]) -> KernelEvent:
    name, launch = str(entry["name"]), entry.get("args", {})
    start_us, duration_us = float(entry["ts"]), float(entry["dur"])
    if not (math.isfinite(start_us) and math.isfinite(duration_us) and duration_us >= 0):
        raise ValueError(f"{name!r} from {start_us} us for {duration_us} us")
    return KernelEvent(_shorten(name), _size(launch.get("grid")), _size(launch.get("block")), start_us, duration_us)


def _shorten(name: str) -> str:
    name = " ".join(name.split())
    if len(name) <= NAME_LENGTH:
        return name
    return f"{name[: NAME_LENGTH - 9]}#{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _size(blocks: Sequence[int] | None) -> str:
    return "x".join(str(int(extent)) for extent in blocks) if blocks else ""


def _gap_us(trace: Sequence[KernelEvent], position: int) -> float:
    if position + 1 == len(trace):
        return 0.0
    return trace[position + 1].start_us - trace[position].start_us - trace[position].duration_us


def _mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation to the nanosecond, the resolution of the profiler's clock."""
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
        raise line.error(column, "unknown", "one of " + ", ".join(known), "Correct it.")
    return text


def _launch(line: Row, column: str) -> str:
    text = line.cells[column]
    if text and not _SIZE.match(text):
        raise line.error(column, "no size", "three whole numbers such as 80x1x1, or nothing for a copy", "Correct it.")
    return text


def _check_trace(trace: Sequence[tuple[Row, KernelRow]], *, doubled: bool) -> None:
    """Check that the rows of a workload stand together once, with positions from 0 to its number of kernels."""
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


def manifest_entry(path: Path) -> dict[str, Any]:
    """Return a manifest's entry for a table of kernels; empty if there is no table."""
    if not path.is_file():
        return {}
    rows = read(path)
    return {
        "table": path.name,
        "sha256": files.sha256(path),
        "rows": len(rows),
        "workloads": len({row.setting for row in rows}),
    }


def update_manifest(path: str | Path) -> None:
    """Update the entry for a table of kernels in the manifest beside it, if there is one.

    Raises:
        InputError: the manifest cannot be read.
    """
    path = Path(path)
    manifest_path = path.with_name(manifest.NAME)
    if path.name == NAME and manifest_path.is_file():
        manifest.write_kernels(manifest_path, manifest_entry(path))
