"""The energy of a shared GPU, divided among the tasks that ran on it.

A counter measures a whole board, and under MPS the kernels of several tasks run at once. So the energy of one of them
is a division of what the board used, not a measurement: `Run.energy_by_task` says how it is divided.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from heshare.devices.device_model import co_run_rates
from heshare.running.timeline import Interval
from heshare.shared.errors import InputError, require
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

if TYPE_CHECKING:
    from heshare.running.result import Run


def split_energy(energy_j: float, idle_j: float, weights: Sequence[float]) -> list[float]:
    """Return the part of each task in the energy of a period in which the same tasks were on the GPU, J.

    Idle energy is divided equally among them; what the GPU used above it, in proportion to their weights. The parts sum
    to `energy_j`, up to rounding. Energy below `idle_j` is divided equally.

    Args:
        energy_j: the GPU's energy, J.
        idle_j: what it would have used without them, J.
        weights: their power alone above idle, W, or anything proportional to it, at least 0, shape (n,). One that is
            not known, NaN, is taken to be the mean of the others. If none is known, or all are 0, all energy is divided
            equally. No tasks have no parts.

    Example:
        >>> split_energy(100.0, 40.0, [30.0, 10.0])
        [65.0, 35.0]
    """
    count = len(weights)
    known = [weight for weight in weights if not math.isnan(weight)]
    sum_of_known = sum(known)
    if sum_of_known <= 0.0:
        return [energy_j / count for _ in weights]

    mean = sum_of_known / len(known)
    filled = [mean if math.isnan(weight) else weight for weight in weights]
    sum_of_weights = sum(filled)

    idle_j = min(idle_j, energy_j)
    above_j = energy_j - idle_j
    return [idle_j / count + weight / sum_of_weights * above_j for weight in filled]


def share_energy(
    gpu: Gpu, residents: Sequence[Resident], sm_mhz: float, energy_j: float, duration_s: float
) -> list[float]:
    """Return the part of each resident in the energy that a GPU used in a period, by the device model, J.

    The weights of `split_energy` are the power above idle that each resident draws alone at its MPS percentage and the
    GPU's clock. A resident that shares in another way than MPS is weighed as if it had its percentage under MPS. One
    that the device model does not have, such as a workload of its own, has the mean weight of the others; on a GPU that
    the model does not have, all parts are equal.

    Args:
        gpu: the GPU.
        residents: what ran on it for the whole period, shape (n,).
        sm_mhz: its SM clock, MHz, of which the nearest on the GPU's grid counts; NaN is the top clock.
        energy_j: what the GPU used, J.
        duration_s: length of the period, s.

    Returns:
        Shape (n,); the parts sum to `energy_j`, up to rounding.
    """
    clock_mhz = nearest_clock(gpu.clocks_mhz, sm_mhz)
    weights_w = [_above_idle_w(gpu, resident, clock_mhz) for resident in residents]
    return split_energy(energy_j, _idle_w(gpu) * duration_s, weights_w)


def nearest_clock(clocks_mhz: Sequence[int], sm_mhz: float) -> int:
    """Return the nearest clock of an ascending grid, MHz; the top one for NaN."""
    if math.isnan(sm_mhz):
        return clocks_mhz[-1]

    place = bisect_left(clocks_mhz, sm_mhz)
    neighbours_mhz = clocks_mhz[max(0, place - 1) : place + 1]
    return min(neighbours_mhz, key=lambda mhz: abs(mhz - sm_mhz))


@lru_cache(maxsize=4096)
def _above_idle_w(gpu: Gpu, resident: Resident, sm_mhz: int) -> float:
    """Return the power above idle of a resident alone under MPS, W; NaN if the device model does not have it."""
    alone = replace(resident, sharing="mps")
    try:
        power_w = co_run_rates(gpu, (alone,), sm_mhz).power_w
    except InputError:
        return math.nan
    return float(power_w) - _idle_w(gpu)


@lru_cache(maxsize=256)
def _idle_w(gpu: Gpu) -> float:
    """Return the power of a GPU with nothing running, W; that of its description if the device model lacks it."""
    try:
        return float(co_run_rates(gpu, ()).power_w)
    except InputError:
        return gpu.idle_w


def energy_by_task(done: "Run") -> pd.DataFrame:
    """Return the energy of each task of a run; see `Run.energy_by_task`."""
    kept_timeline = bool(done.record.segments)
    action = "Run it again, with its timeline."
    require("run", "a run that kept only totals", kept_timeline, "a run with its timeline", action)

    workloads = _RunningWorkloads(done.tasks, done.record.intervals)
    energy_j = np.zeros(len(done.tasks))

    for segment in done.record.segments:
        duration_s = segment.end_s - segment.start_s
        residents = [
            Resident(workloads.at(task, segment.gpu, segment.start_s), mps_pct)
            for task, mps_pct, _ in segment.residents
        ]
        gpu = done.cluster.gpus[segment.gpu]
        parts_j = share_energy(gpu, residents, segment.sm_mhz, segment.power_w * duration_s, duration_s)

        for (task, _, _), part_j in zip(segment.residents, parts_j, strict=True):
            energy_j[task] += part_j

    frame = done.to_frame()[["task", "workload", "batch_size", "gpu", "provenance"]]
    frame.insert(4, "energy_j", energy_j)
    return frame


class _RunningWorkloads:
    """The workload as which a task runs on a GPU at a moment: policies may change inference batch sizes."""

    def __init__(self, tasks: Sequence[Task], intervals: Sequence[Interval]) -> None:
        self._tasks = tasks
        self._intervals: defaultdict[tuple[int, int], list[Interval]] = defaultdict(list)
        for interval in sorted(intervals, key=lambda each: each.start_s):
            self._intervals[interval.task, interval.gpu].append(interval)

    def at(self, task: int, gpu: int, time_s: float) -> Workload:
        """Return the workload of a task that runs on this GPU at this time, s."""
        own = self._tasks[task].workload
        intervals = self._intervals[task, gpu]

        # The last interval that has begun: an interval's end is the next one's start.
        place = bisect_right(intervals, time_s, key=lambda each: each.start_s) - 1
        batch_size = intervals[max(0, place)].batch_size
        return own if batch_size == own.batch_size else replace(own, batch_size=batch_size)
