"""The power of a run above a limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from heshare.lab.limits import PowerLimit
from heshare.running.clock import MOMENT_S
from heshare.running.result import Run
from heshare.running.timeline import power_steps


def excess_w(done: Run, limit: Any) -> float:
    """Return by how much the sum of the GPUs' power is above a limit, at the moment at which this is most, W."""
    limit = PowerLimit.parse(limit)
    times_s, power_w = power_steps(done.record.segments)
    # Both are step functions: a step of either may be where they cross.
    moments_s = np.union1d(times_s[:-1], [time_s for time_s in limit.times_s if times_s[0] <= time_s < times_s[-1]])
    present_w = power_w[np.searchsorted(times_s, moments_s, side="right") - 1]
    limits_w = np.array([limit.at(moment_s) for moment_s in moments_s])
    # A moment of rounding before a step, the power is already that after it.
    lengths_s = np.diff(np.append(moments_s, times_s[-1]))
    return float(np.where(lengths_s > MOMENT_S, present_w - limits_w, -math.inf).max())
