"""The sharing model of time slices: residents of a GPU take turns on the whole of it.

The slowdown of each of k residents is `max(1, sum of busy parts) (1 + o_k)`, a form that is assumed. EaCO (arXiv
2412.08294, Table 1) measured sets of two, three and four trainings on V100. Their busy parts add up to at most 1.005,
so `o_k` is the cost of switching alone: 3.5, 8.3 and 24.5 %.
"""

from collections.abc import Sequence

from heshare.devices.device_model import IterationTimes, register_sharing_model
from heshare.devices.iteration_time import Iteration
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

TIME_SLICE = "time-slice"
"""The name of this way of sharing."""
SWITCHING = (0.0, 0.035, 0.083, 0.245)
"""Cost `o_k` of time slices for 1 to 4 residents, over the time alone (EaCO's measurements)."""
FURTHER = 0.162
"""Additional cost of each resident beyond the fourth: that of the fourth; assumed."""


def switching_cost(residents: int) -> float:
    """Return the cost `o_k` of time slices for that many residents, over the time alone."""
    if residents <= len(SWITCHING):
        return SWITCHING[max(residents, 1) - 1]
    return SWITCHING[-1] + FURTHER * (residents - len(SWITCHING))


def time_slice_slowdown(busy: Sequence[float]) -> float:
    """Return the factor by which time slices stretch every iteration.

    Args:
        busy: the part of each resident's time alone in which its kernels run, 0 to 1.
    """
    return max(1.0, sum(busy)) * (1.0 + switching_cost(len(busy)))


class TimeSlicing:
    """The sharing model of `time-slice`."""

    def check(self, gpu: Gpu, residents: Sequence[Resident]) -> None:
        """Accept any residents: every GPU has time slices."""

    def memory_mib(self, gpu: Gpu, resident: Resident) -> float:
        """Return infinity: only the GPU's memory limits a resident."""
        return float("inf")

    def iteration_times(self, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        """Return the function that gives each resident's time per iteration at a clock, s."""

        def times_s(slow: float, stalled: float) -> list[float]:
            alone_s = [part.time_s(slow, stalled) for part in parts]
            busy = [part.gpu_s(slow, stalled) / time for part, time in zip(parts, alone_s, strict=True)]
            return [time_slice_slowdown(busy) * time for time in alone_s]

        return times_s


register_sharing_model(TIME_SLICE, TimeSlicing())
