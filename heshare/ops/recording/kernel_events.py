"""Kernels of a profiler's trace: read, summarised over repeated iterations, and noted in a manifest."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from heshare.lab.systems.fikit.kernel_table import NAME, NAME_LENGTH, KernelRow, read
from heshare.ops.worker_program.kernel_profiler import ON_GPU
from heshare.profiles import manifest
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.world.workload import Workload


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
