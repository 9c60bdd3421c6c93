"""Recorded kernels as traces for the kernel loop (`heshare.devices.kernels`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from heshare.devices.kernels.trace import Trace
from heshare.profiles.kernels import KernelRow
from heshare.world.catalogue import gpu

_LEAST_S = 1e-9


def trace_of(rows: Sequence[KernelRow], *, ahead: bool = True) -> Trace:
    """The trace of one workload; alone it takes the recorded time.

    Which SMs a kernel can use is not recorded: as many as it has blocks, one for each, and all for a copy (assumed).

    Args:
        rows: its kernels in order, as `heshare.profiles.kernels.read` gives them.
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
    return Trace(
        f"{rows[0].workload}:{rows[0].batch_size}",
        duration_s,
        np.array([_sms(row.grid, sm_count) for row in rows]),
        np.array([identities.setdefault((row.kernel, row.grid, row.block), len(identities)) for row in rows]),
        before_s,
        waits,
    )


def traces_of(rows: Iterable[KernelRow], *, ahead: bool = True) -> dict[str, Trace]:
    """The traces of a table, by model and inference batch size such as `resnet50:8`; the first precision of each."""
    found: dict[str, Trace] = {}
    for _, some in groupby(rows, key=lambda row: row.setting):
        trace = trace_of(tuple(some), ahead=ahead)
        found.setdefault(trace.name, trace)
    return found


def _sms(grid: str, sm_count: int) -> float:
    blocks = int(np.prod([int(side) for side in grid.split("x")])) if grid else sm_count
    return min(1.0, blocks / sm_count)
