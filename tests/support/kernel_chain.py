"""Kernel traces as FIKIT describes a task: a host that waits for every kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from heshare.lab.systems.fikit.kernel_trace import KernelTrace


def chain(
    name: str, duration_s: ArrayLike, gap_s: ArrayLike, sms: ArrayLike = 1.0, kernel: ArrayLike = 0
) -> KernelTrace:
    """Return a trace of kernels, and after each a gap of that length before the next one is launched.

    Args:
        name: its name.
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
