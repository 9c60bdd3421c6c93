"""FIKIT's filling for whole tasks: how fast tasks of several priorities run, from what they leave idle when alone.

It is derived from the kernel loop (`heshare.systems.fikit`) and held against it by a test. In order of priority, each
class takes the GPU time that it wants, and leaves the next one what is idle in gaps long enough to be filled. Of each
such gap the last part stays empty, since the next kernel in order no longer fits: on average the mean residual life of
a kernel, E[k^2] / (2 E[k]). A filler has one iteration launched and waiting when a gap begins, and goes on at its own
pace alone once that is done. A task with a kernel that is longer than the gaps does not get past it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from heshare.devices.device_model import IterationTimes, register_sharing_model
from heshare.devices.iteration_time import Iteration
from heshare.systems.fikit.kernel_rules import FikitRule
from heshare.systems.fikit.kernel_trace import KernelTrace, predictions, traces
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

RULE = FikitRule()
GAPS = 1
"""Gaps into which the idle time of an iteration falls; assumed, in FIKIT's favour: the host's own work in one piece.
With a gap after each kernel, which is what a host leaves that only launches, none of them reaches the threshold."""


@dataclass(frozen=True, slots=True)
class GpuDemand:
    """What a task wants of the GPU and what it leaves of it, when it runs alone.

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


def demand_of_trace(trace: KernelTrace, priority: int = 0, rule: FikitRule = RULE) -> GpuDemand:
    """A traced task's demand; its gaps are those that FIKIT expects of each kernel identity."""
    expected_s, gaps_s = predictions(trace)
    _, alone_s = trace.alone()
    usable_s = rule.margin * gaps_s[rule.margin * gaps_s > rule.least_gap_s]
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


def demand_of_part(part: Iteration, priority: int, slow: float, stalled: float, rule: FikitRule = RULE) -> GpuDemand:
    """The demand of a workload of the device model; its kernels vary in length as the traced ones do."""
    time_s, busy_s = part.time_s(slow, stalled), part.gpu_s(slow, stalled)
    gap_s = rule.margin * (time_s - busy_s) / GAPS
    usable = gap_s > rule.least_gap_s
    mean_s = busy_s / max(part.kernels, 1.0)
    square, longest = lengths()
    return GpuDemand(
        priority,
        min(1.0, busy_s / time_s),
        gap_s * GAPS / time_s if usable else 0.0,
        gap_s if usable else 0.0,
        0.5 * square * mean_s,
        longest * mean_s,
        busy_s,
    )


def intercepted(part: Iteration, rule: FikitRule = RULE) -> Iteration:
    """A workload whose every launch is intercepted: more host time."""
    return replace(part, host_s=part.host_s + rule.launch_s * part.kernels)


@cache
def lengths() -> tuple[float, float]:
    """How kernels of an iteration vary: E[k^2] / E[k]^2, and the longest over the mean; means over the traces."""
    found = [predictions(trace)[0] for trace in traces().values()]
    square = np.mean([(each**2).mean() / each.mean() ** 2 for each in found])
    return float(square), float(np.mean([each.max() / each.mean() for each in found]))


def priority_of(sharing: str) -> int:
    """The class of a way of sharing such as `priority-3`."""
    return int(sharing.removeprefix("priority-"))


def times_s(parts: Sequence[Iteration], priorities: Sequence[int], slow: float, stalled: float) -> list[float]:
    """Time of an iteration of each resident, s, infinite for one that does not get a turn.

    Args:
        parts: of each resident's iteration on the whole GPU.
        priorities: of each, 0 the most urgent.
        slow: top clock over clock.
        stalled: the factor on memory time.
    """
    launched = [intercepted(part) for part in parts]
    demands = [
        demand_of_part(part, priority, slow, stalled) for part, priority in zip(launched, priorities, strict=True)
    ]
    return [
        part.time_s(slow, stalled) / speed if speed > 0 else math.inf
        for part, speed in zip(launched, speeds(demands), strict=True)
    ]


def speeds(demands: Sequence[GpuDemand]) -> list[float]:
    """Speed of each task, over its speed alone, while all of them share the GPU.

    Tasks of one class share what is left to it in proportion to what they want. A task that gets nothing has speed 0.
    """
    speed = [0.0] * len(demands)
    idle, gap_s = 1.0, np.inf
    for priority in sorted({one.priority for one in demands}):
        members = [place for place, one in enumerate(demands) if one.priority == priority]
        room = {place: _filled(demands[place], idle, gap_s) for place in members}
        wanted = sum(demands[place].busy for place in members)
        for place in members:
            speed[place] = min(1.0, room[place] / wanted)
        if gap_s == np.inf:
            # The most urgent class has the GPU to itself; where it has several tasks, one fills the other's gaps.
            gap_s = min(demands[place].gap_s for place in members)
            idle = max(0.0, min(demands[place].idle for place in members) + _own(demands, members) - wanted)
        else:
            idle = max(0.0, idle - sum(speed[place] * demands[place].busy for place in members))
    return speed


def _own(demands: Sequence[GpuDemand], members: Sequence[int]) -> float:
    """What the task with the least idle time wants itself."""
    return demands[min(members, key=lambda place: demands[place].idle)].busy


def _filled(one: GpuDemand, idle: float, gap_s: float) -> float:
    """The share of the GPU's time that a task can have of an idle share in gaps of a length."""
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
        """Return infinity: only the GPU's memory limits a resident."""
        return math.inf

    def iteration_times(self, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        """Return the function that gives each resident's time per iteration at a clock, s."""
        priorities = [priority_of(resident.sharing) for resident in residents]
        return lambda slow, stalled: times_s(parts, priorities, slow, stalled)


register_sharing_model("priority", PrioritySharing())
