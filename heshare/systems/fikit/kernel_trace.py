"""Traces of the kernels that one iteration launches, with the host that launches them.

The host launches kernels one after the other and runs ahead of the GPU (PyTorch's way), except after kernels that it
waits for. A trace in which it waits for every kernel is a plain chain of kernels and gaps, as FIKIT describes a task.

Recorded kernels as traces for the kernel loop (`heshare.systems.fikit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from heshare import files
from heshare.arrays import BoolArray, FloatArray, IntArray
from heshare.devices.constants import Constants, default
from heshare.errors import InputError
from heshare.gpu.recording.kernel_table import KernelRow
from heshare.world.catalogue import gpu
from heshare.world.csv_table import read_table

COLUMNS = ("workload", "batch_size", "position", "kernel", "sms", "duration_us")
TRACED_ON = "V100-SXM2"
"""The GPU of `data/kernels/v100.csv`."""


@dataclass(frozen=True, eq=False)
class KernelTrace:
    """The n kernels of one iteration.

    Attributes:
        name: what launches them.
        duration_s: how long each runs with the whole GPU, s, shape (n,).
        sms: the share of the GPU's SMs that each can use, above 0 and at most 1, shape (n,).
        kernel: which kernel it is: equal numbers for equal name and size, shape (n,).
        host_s: host time before each launch, s: since the launch before, or since the end of the kernel before if the
            host waited for that, shape (n,).
        waits: whether the host waits for the kernel's end before it goes on; it always waits for the last, shape (n,).

    Raises:
        InputError: no kernels, shapes that differ, a duration of nothing, or shares out of range.
    """

    name: str
    duration_s: FloatArray
    sms: FloatArray
    kernel: IntArray
    host_s: FloatArray
    waits: BoolArray

    def __post_init__(self) -> None:
        arrays = (self.duration_s, self.sms, self.kernel, self.host_s, self.waits)
        good = (
            len(self.duration_s) > 0
            and len({array.shape for array in arrays}) == 1
            and bool((self.duration_s > 0).all() and (self.host_s >= 0).all() and self.waits[-1])
            and bool((self.sms > 0).all() and (self.sms <= 1).all())
        )
        if not good:
            raise InputError(
                f"{len(self.duration_s)} kernels, arrays of shapes {[array.shape for array in arrays]}",
                "at least one kernel, arrays of one shape, durations above 0, SM shares above 0 and up to 1",
                "Correct the trace.",
                column=self.name,
            )

    def __len__(self) -> int:
        return len(self.duration_s)

    @property
    def busy_s(self) -> float:
        """Time of the kernels of one iteration, s."""
        return float(self.duration_s.sum())

    def alone(self) -> tuple[FloatArray, float]:
        """Iteration after iteration alone: the gap after each kernel, s, shape (n,), and an iteration's time, s.

        The gap after the last kernel lasts until the first one of the next iteration.
        """
        launched_s = free_s = 0.0
        gaps_s = np.empty(len(self))
        for at, (duration_s, host_s) in enumerate(zip(self.duration_s.tolist(), self.host_s.tolist(), strict=True)):
            launched_s = (free_s if at and self.waits[at - 1] else launched_s) + host_s
            start_s = max(launched_s, free_s)
            gaps_s[at - 1] = start_s - free_s
            free_s = start_s + duration_s
        return gaps_s, free_s

    def with_waits(self, waits: int) -> KernelTrace:
        """The same kernels with a host that waits for `waits` of them, evenly spread; at least 1, the last.

        Raises:
            InputError: fewer than one wait, or more than there are kernels.
        """
        if not 1 <= waits <= len(self):
            raise InputError(str(waits), f"1 to {len(self)} kernels to wait for", "Correct it.", column="waits")
        chosen = np.zeros(len(self), dtype=np.bool_)
        chosen[np.ceil(np.arange(1, waits + 1) * len(self) / waits).astype(np.int64) - 1] = True
        return replace(self, waits=chosen)

    def with_host(self, *, each_s: float = 0.0, first_s: float = 0.0) -> KernelTrace:
        """The same kernels with more host time before each launch, and before the first one of an iteration, s."""
        host_s = self.host_s + each_s
        host_s[0] += first_s
        return replace(self, host_s=host_s)


def chain(
    name: str, duration_s: ArrayLike, gap_s: ArrayLike, sms: ArrayLike = 1.0, kernel: ArrayLike = 0
) -> KernelTrace:
    """A task as FIKIT describes it: kernels, and after each a gap of that length before the next one is launched.

    Args:
        name: what it is.
        duration_s: of each kernel, s, shape (n,).
        gap_s: after each kernel, s, shape (n,) or one for all; the last one comes before the next iteration.
        sms: share of the SMs, shape (n,) or one for all.
        kernel: identities, shape (n,) or one for all.
    """
    durations = np.asarray(duration_s, dtype=np.float64)
    n = len(durations)
    gaps = np.broadcast_to(np.asarray(gap_s, dtype=np.float64), n)
    return KernelTrace(
        name,
        durations,
        np.broadcast_to(np.asarray(sms, dtype=np.float64), n).copy(),
        np.broadcast_to(np.asarray(kernel, dtype=np.int64), n).copy(),
        np.roll(gaps, 1),
        np.ones(n, dtype=np.bool_),
    )


def predictions(trace: KernelTrace) -> tuple[FloatArray, FloatArray]:
    """FIKIT's measurement stage: duration and following gap expected at each place of a trace, s, both shape (n,).

    They are means over the places with the same kernel identity, of the trace alone.
    """
    gaps_s, _ = trace.alone()
    counts = np.bincount(trace.kernel)
    duration_s, gap_s = (
        (np.bincount(trace.kernel, values) / np.maximum(counts, 1))[trace.kernel]
        for values in (trace.duration_s, gaps_s)
    )
    return duration_s, gap_s


@cache
def traces() -> Mapping[str, KernelTrace]:
    """The traces of `data/kernels/v100.csv` by workload, each with the host of `host_per_kernel_s`.

    Raises:
        InputError: a bad cell, with row and column.
    """
    rows: dict[str, list[tuple[str, int, float]]] = {}
    for row in read_table(files.data("kernels", "v100.csv"), COLUMNS):
        known = rows.setdefault(row.text("workload"), [])
        if row.whole("position") != len(known):
            raise row.error("position", "out of order", f"{len(known)}", "Keep each workload's rows in order.")
        known.append((row.text("kernel"), row.whole("sms", least=1), row.number_of("duration_us", above=True)))
    host_s = host_per_kernel_s({name: len(found) for name, found in rows.items()})
    return MappingProxyType({name: _trace(name, found, host_s) for name, found in rows.items()})


def host_per_kernel_s(kernels: Mapping[str, int], constants: Constants | None = None) -> float:
    """Host time for one launch of eager PyTorch, s: the mean over the traced workloads with a measured host floor.

    The traces themselves have no gaps; this is the calibrated host time of an iteration over its traced kernels.

    Args:
        kernels: traced kernels of an iteration, by workload.
        constants: the device model's constants; the calibrated ones unless given.
    """
    timing = (constants or default()).timing
    floors = [(timing.get((TRACED_ON, "eager", name)), count) for name, count in sorted(kernels.items())]
    return float(np.mean([known.host_s / count for known, count in floors if known and known.host_s > 0]))


def _trace(name: str, rows: Sequence[tuple[str, int, float]], host_s: float) -> KernelTrace:
    known: dict[tuple[str, int], int] = {}
    n, sms = len(rows), gpu(TRACED_ON).sm_count
    waits = np.zeros(n, dtype=np.bool_)
    waits[-1] = True
    return KernelTrace(
        name,
        np.array([1e-6 * duration_us for *_, duration_us in rows]),
        np.array([min(1.0, wanted / sms) for _, wanted, _ in rows]),
        np.array([known.setdefault((kernel, wanted), len(known)) for kernel, wanted, _ in rows]),
        np.full(n, host_s),
        waits,
    )


_LEAST_S = 1e-9


def trace_of(rows: Sequence[KernelRow], *, ahead: bool = True) -> KernelTrace:
    """The trace of one workload; alone it takes the recorded time.

    Which SMs a kernel can use is not recorded: as many as it has blocks, one for each, and all for a copy (assumed).

    Args:
        rows: its kernels in order, as `heshare.gpu.recording.kernel_table.read` gives them.
        ahead: whether the host runs ahead of the GPU: each kernel is launched when it began in the record, whatever
            happens to those before it. Without, the host waits for each kernel, and the gaps follow it.
    """
    duration_s = np.maximum([1e-6 * row.duration_us for row in rows], _LEAST_S)
    gap_s = np.maximum([1e-6 * row.gap_us for row in rows], 0.0)
    before_s = np.roll(gap_s, 1)
    waits = np.full(len(rows), not ahead)
    waits[-1] = True
    if ahead:
        before_s[1:] += duration_s[:-1]
    identities: dict[tuple[str, str, str], int] = {}
    sm_count = gpu(rows[0].gpu).sm_count
    return KernelTrace(
        f"{rows[0].workload}:{rows[0].batch_size}",
        duration_s,
        np.array([_sms(row.grid, sm_count) for row in rows]),
        np.array([identities.setdefault((row.kernel, row.grid, row.block), len(identities)) for row in rows]),
        before_s,
        waits,
    )


def traces_of(rows: Iterable[KernelRow], *, ahead: bool = True) -> dict[str, KernelTrace]:
    """The traces of a table, by model and inference batch size such as `resnet50:8`; the first precision of each."""
    found: dict[str, KernelTrace] = {}
    for _, some in groupby(rows, key=lambda row: row.setting):
        trace = trace_of(tuple(some), ahead=ahead)
        found.setdefault(trace.name, trace)
    return found


def _sms(grid: str, sm_count: int) -> float:
    blocks = int(np.prod([int(side) for side in grid.split("x")])) if grid else sm_count
    return min(1.0, blocks / sm_count)
