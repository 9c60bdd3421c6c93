"""FIKIT's filling for whole tasks: speeds of tasks of several priorities, from their GPU time and idle time alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from heshare.devices.device_model import IterationTimes, register_sharing_model
from heshare.devices.iteration_time import Iteration
from heshare.devices.uncertainty import Spreads
from heshare.lab.systems.fikit.kernel_rules import FikitRule
from heshare.lab.systems.fikit.kernel_trace import KernelTrace, predictions, traces
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

RULE = FikitRule()
GAPS = 1
"""Gaps into which the idle time of an iteration falls; assumed, in FIKIT's favour: the host's own work in one piece.
With a gap after each kernel, which is what a host leaves that only launches, none of them reaches the threshold."""


# It is derived from the kernel loop (`heshare.lab.systems.fikit.kernel_rules`), and a test compares the two. In order
# of priority, each class takes the GPU time that it needs, and leaves to the next one the time that is idle in gaps
# long enough to be filled. Of each such gap the last part stays empty, since the next kernel in order no longer fits:
# on average the mean residual life of a kernel, E[k^2] / (2 E[k]). A filler has one iteration launched and waiting when
# a gap begins, and then continues at its speed alone. A task with a kernel that is longer than the gaps makes no
# progress beyond it.


@dataclass(frozen=True, slots=True)
class GpuDemand:
    """GPU time that a task needs and leaves idle when it runs alone.

    Attributes:
        priority: its class, 0 the most urgent.
        busy: the share of its time in which its kernels run.
        idle: the share of its time in gaps that are long enough to be filled.
        gap_s: how long such a gap is, s.
        residual_s: mean residual life of its kernels, s.
        longest_s: its longest kernel, s.
        iteration_s: GPU time of an iteration, s.
    """

    priority: int
    busy: float
    idle: float
    gap_s: float
    residual_s: float
    longest_s: float
    iteration_s: float


def demand_of_trace(trace: KernelTrace, priority: int = 0) -> GpuDemand:
    """Return a traced task's demand; its gaps are those that FIKIT expects of each kernel identity."""
    expected_s, gaps_s = predictions(trace)
    _, alone_s = trace.alone()
    usable_s = RULE.margin * gaps_s[RULE.margin * gaps_s > RULE.least_gap_s]
    square = float((expected_s**2).mean() / expected_s.mean())
    return GpuDemand(
        priority,
        trace.busy_s / alone_s,
        float(usable_s.sum()) / alone_s,
        float(usable_s.mean()) if len(usable_s) else 0.0,
        0.5 * square,
        float(expected_s.max()),
        trace.busy_s,
    )


def demand_of_part(part: Iteration, priority: int, slow: float, stalled: float) -> GpuDemand:
    """Return the demand of a workload of the device model; its kernels vary in length as the traced ones do."""
    time_s, busy_s = part.time_s(slow, stalled), part.gpu_s(slow, stalled)
    gap_s = RULE.margin * (time_s - busy_s) / GAPS
    if gap_s <= RULE.least_gap_s:
        gap_s = 0.0
    mean_s = busy_s / max(part.kernels, 1.0)
    square, longest = lengths()
    return GpuDemand(
        priority,
        min(1.0, busy_s / time_s),
        gap_s * GAPS / time_s,
        gap_s,
        0.5 * square * mean_s,
        longest * mean_s,
        busy_s,
    )


@cache
def lengths() -> tuple[float, float]:
    """Return how kernels of an iteration vary: E[k^2] / E[k]^2, and the longest over the mean, over the traces."""
    found = [predictions(trace)[0] for trace in traces().values()]
    square = np.mean([(each**2).mean() / each.mean() ** 2 for each in found])
    return float(square), float(np.mean([each.max() / each.mean() for each in found]))


def times_s(parts: Sequence[Iteration], priorities: Sequence[int], slow: float, stalled: float) -> list[float]:
    """Return the time of an iteration of each resident, s, infinite for one that never runs.

    `parts` are iterations on the whole GPU, `slow` is the top clock over the clock. Interception of a launch costs each
    resident host time.
    """
    launched = [replace(part, host_s=part.host_s + RULE.launch_s * part.kernels) for part in parts]
    demands = [
        demand_of_part(part, priority, slow, stalled) for part, priority in zip(launched, priorities, strict=True)
    ]
    return [
        part.time_s(slow, stalled) / speed if speed > 0 else math.inf
        for part, speed in zip(launched, speeds(demands), strict=True)
    ]


def speeds(demands: Sequence[GpuDemand]) -> list[float]:
    """Return the speed of each task, over its speed alone, while all of them share the GPU.

    Tasks of one class share the time that is left to it in proportion to their demand. A task without any has speed 0.
    """
    speed = [0.0] * len(demands)
    idle, gap_s = 1.0, np.inf
    for priority in sorted({one.priority for one in demands}):
        members = [place for place, one in enumerate(demands) if one.priority == priority]
        room = {place: _filled(demands[place], idle, gap_s) for place in members}
        needed = sum(demands[place].busy for place in members)
        for place in members:
            speed[place] = min(1.0, room[place] / needed)
        if gap_s == np.inf:
            # The most urgent class has the whole GPU; its tasks fill each other's gaps.
            least = min((demands[place] for place in members), key=lambda demand: demand.idle)
            gap_s = min(demands[place].gap_s for place in members)
            idle = max(0.0, least.idle + least.busy - needed)
        else:
            idle = max(0.0, idle - sum(speed[place] * demands[place].busy for place in members))
    return speed


def _filled(one: GpuDemand, idle: float, gap_s: float) -> float:
    if gap_s == np.inf:
        return idle
    if one.longest_s > gap_s:
        return 0.0
    waiting_s = min(gap_s, one.iteration_s)
    paced = (waiting_s + one.busy * (gap_s - waiting_s)) / gap_s
    return idle * paced * max(0.0, 1.0 - one.residual_s / gap_s)


class PrioritySharing:
    """The sharing model of FIKIT's priorities, `priority-0` (the most urgent) to `priority-9`."""

    def check(self, gpu: Gpu, residents: Sequence[Resident]) -> None:
        """Accept any residents: FIKIT runs on every GPU."""

    def memory_mib(self, gpu: Gpu, resident: Resident) -> float:
        return math.inf

    def iteration_times(self, gpu: Gpu, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        priorities = [int(resident.sharing.removeprefix("priority-")) for resident in residents]
        return lambda slow, stalled: times_s(parts, priorities, slow, stalled)

    def contention(self, gpu: Gpu, residents: Sequence[Resident], spreads: Spreads) -> list[float]:
        return [spreads.beside(resident.sharing, len(residents) - 1) for resident in residents]


register_sharing_model("priority", PrioritySharing())
