"""Traces of the kernels that one iteration launches, with the host that launches them: published and recorded ones.

The host launches kernels one after the other and runs ahead of the GPU (as in PyTorch), except after kernels that it
waits for. A trace in which it waits for every kernel is a plain chain of kernels and gaps, as FIKIT describes a task.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from types import MappingProxyType

import numpy as np

from heshare.devices.constants import default
from heshare.lab.systems.fikit.kernel_table import KernelRow
from heshare.shared import files
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.errors import InputError
from heshare.shared.inputs.csv_table import read_table
from heshare.world.catalogue import gpu

COLUMNS = ("workload", "batch_size", "position", "kernel", "sms", "duration_us")
TRACED_ON = "V100-SXM2"
"""The GPU of `data/kernels/v100.csv`."""
_LEAST_S = 1e-9


@dataclass(frozen=True, eq=False)
class KernelTrace:
    """The n kernels of one iteration.

    Attributes:
        name: the workload.
        duration_s: how long each runs with the whole GPU, s, shape (n,).
        sms: the share of the GPU's SMs that each can use, above 0 and at most 1, shape (n,).
        kernel: the identity of each: equal numbers for equal name and size, shape (n,).
        host_s: host time before each launch, s: since the launch before, or since the end of the kernel before if the
            host waited for that, shape (n,).
        waits: whether the host waits for the kernel's end before it continues; it always waits for the last, shape
            (n,).
    """

    name: str
    duration_s: FloatArray
    sms: FloatArray
    kernel: IntArray
    host_s: FloatArray
    waits: BoolArray

    def __len__(self) -> int:
        return len(self.duration_s)

    @property
    def busy_s(self) -> float:
        return float(self.duration_s.sum())

    def alone(self) -> tuple[FloatArray, float]:
        """Return the gap after each kernel, s, shape (n,), and the time of an iteration, s, when it runs alone.

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

    def with_waits(self, waits: int) -> "KernelTrace":
        """Return the same kernels with a host that waits for `waits` of them, evenly spread; at least 1, the last."""
        if not 1 <= waits <= len(self):
            raise InputError(str(waits), f"1 to {len(self)} kernels to wait for", "Correct it.", column="waits")
        chosen = np.zeros(len(self), dtype=np.bool_)
        chosen[np.ceil(np.arange(1, waits + 1) * len(self) / waits).astype(np.int64) - 1] = True
        return replace(self, waits=chosen)

    def with_host(self, *, each_s: float = 0.0, first_s: float = 0.0) -> "KernelTrace":
        host_s = self.host_s + each_s
        host_s[0] += first_s
        return replace(self, host_s=host_s)


def predictions(trace: KernelTrace) -> tuple[FloatArray, FloatArray]:
    """Return FIKIT's predictions: duration and following gap of the kernel at each position, s, both shape (n,).

    They are means over the positions with the same kernel identity, measured when the trace runs alone.
    """
    counts = np.maximum(np.bincount(trace.kernel), 1)
    duration_s, gap_s = (
        (np.bincount(trace.kernel, values) / counts)[trace.kernel] for values in (trace.duration_s, trace.alone()[0])
    )
    return duration_s, gap_s


@cache
def traces() -> Mapping[str, KernelTrace]:
    """Return the traces of `data/kernels/v100.csv` by workload, each with the host of `host_per_kernel_s`."""
    rows: dict[str, list[tuple[str, int, float]]] = {}
    for row in read_table(files.data("kernels", "v100.csv"), COLUMNS):
        known = rows.setdefault(row.text("workload"), [])
        if row.whole("position") != len(known):
            raise row.error("position", "out of order", f"{len(known)}", "Keep each workload's rows in order.")
        known.append((row.text("kernel"), row.whole("sms", least=1), row.number_of("duration_us", above=True)))
    host_s = host_per_kernel_s({name: len(found) for name, found in rows.items()})
    sm_count = gpu(TRACED_ON).sm_count
    found = {}
    for name, kernels in rows.items():
        duration_s = np.array([1e-6 * duration_us for *_, duration_us in kernels])
        sms = [sms / sm_count for _, sms, _ in kernels]
        found[name] = _trace(name, duration_s, sms, [row[:2] for row in kernels], np.full(len(kernels), host_s))
    return MappingProxyType(found)


def host_per_kernel_s(kernels: Mapping[str, int]) -> float:
    """Return the host time of one launch of eager PyTorch, s: the mean over the workloads with a measured host floor.

    The traces themselves have no gaps; this is the calibrated host time of an iteration over its traced `kernels`.
    """
    timing = default().timing
    floors = [(timing.get((TRACED_ON, "eager", name, "fp32")), count) for name, count in sorted(kernels.items())]
    return float(np.mean([known.host_s / count for known, count in floors if known and known.host_s > 0]))


def trace_of(rows: Sequence[KernelRow]) -> KernelTrace:
    """Return the trace of one recorded workload; alone it takes the recorded time.

    The SMs that a kernel can use are not recorded. Assumed: one for each of its blocks, and all for a copy. The host
    runs ahead of the GPU: each kernel is launched when it began in the record, whatever happens to those before it.
    """
    duration_s = np.maximum([1e-6 * row.duration_us for row in rows], _LEAST_S)
    host_s = np.roll(np.maximum([1e-6 * row.gap_us for row in rows], 0.0), 1)
    host_s[1:] += duration_s[:-1]
    sm_count = gpu(rows[0].gpu).sm_count
    sms = [math.prod(map(int, row.grid.split("x"))) / sm_count if row.grid else 1.0 for row in rows]
    identities = [(row.kernel, row.grid, row.block) for row in rows]
    return _trace(f"{rows[0].workload}:{rows[0].batch_size}", duration_s, sms, identities, host_s)


def traces_of(rows: Iterable[KernelRow]) -> dict[str, KernelTrace]:
    found: dict[str, KernelTrace] = {}
    for _, some in groupby(rows, key=lambda row: row.setting):
        trace = trace_of(tuple(some))
        found.setdefault(trace.name, trace)
    return found


def _trace(
    name: str, duration_s: FloatArray, sms: Sequence[float], identities: Iterable[Hashable], host_s: FloatArray
) -> KernelTrace:
    numbers: dict[Hashable, int] = {}
    kernel = np.array([numbers.setdefault(identity, len(numbers)) for identity in identities])
    return KernelTrace(
        name, duration_s, np.minimum(sms, 1.0), kernel, host_s, np.arange(1, len(host_s) + 1) == len(host_s)
    )
