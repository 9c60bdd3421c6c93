"""The sharing model of time slices: residents of a GPU take turns on the whole of it."""

from collections.abc import Sequence

from heshare.devices.device_model import IterationTimes, register_sharing_model
from heshare.devices.iteration_time import Iteration
from heshare.devices.uncertainty import Spreads
from heshare.lab.systems.shared.training_pairs import each_beside, pair_slowdown, pair_uncertainty, paired_slowdowns
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

TIME_SLICE = "time-slice"
"""The name of this way of sharing."""
SWITCHING = (0.0, 0.035, 0.083, 0.245)
"""Cost `o_k` of time slices for 1 to 4 residents, over the time alone (EaCO's measurements)."""
FURTHER = 0.162
"""Additional cost of each resident beyond the fourth: that of the fourth; assumed."""


def switching_cost(residents: int) -> float:
    if residents <= len(SWITCHING):
        return SWITCHING[max(residents, 1) - 1]
    return SWITCHING[-1] + FURTHER * (residents - len(SWITCHING))


# The slowdown of each of k residents is `max(1, sum of busy parts) (1 + o_k)`, a form that is assumed. EaCO (arXiv
# 2412.08294, Table 1) measured sets of two, three and four trainings on V100. Their busy parts add up to at most 1.005,
# so `o_k` is the cost of switching alone: 3.5, 8.3 and 24.5 %.
#
# Two trainings of a record of pairs (`heshare.lab.systems.shared.training_pairs`) have the slowdown of that record. In
# sets of three and more each further one of the record adds its part: at least `1 + sum over the others (slowdown of
# the pair - 1)`.


def time_slice_slowdown(busy: Sequence[float]) -> float:
    """Return the factor by which time slices stretch iterations; `busy`: parts of times alone in which kernels run."""
    return max(1.0, sum(busy)) * (1.0 + switching_cost(len(busy)))


class TimeSlicing:
    def check(self, gpu: Gpu, residents: Sequence[Resident]) -> None:
        """Accept any residents: every GPU has time slices."""

    def memory_mib(self, gpu: Gpu, resident: Resident) -> float:
        return float("inf")

    def iteration_times(self, gpu: Gpu, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        paired = paired_slowdowns(gpu.name, [resident.workload for resident in residents])

        def times_s(slow: float, stalled: float) -> list[float]:
            alone_s = [part.time_s(slow, stalled) for part in parts]
            busy = [part.gpu_s(slow, stalled) / time for part, time in zip(parts, alone_s, strict=True)]
            turns = time_slice_slowdown(busy)
            # Two trainings of the record have its slowdown, even if that of turns is larger.
            least = 1.0 if len(parts) == 2 else turns
            return [
                time * (turns if slowdown is None else max(least, slowdown))
                for time, slowdown in zip(alone_s, paired, strict=True)
            ]

        return times_s

    def contention(self, gpu: Gpu, residents: Sequence[Resident], spreads: Spreads) -> list[float]:
        """Return the uncertainty of each slowdown: that of pairs if all are in the record, else that of time slices."""
        turns = spreads.beside(TIME_SLICE, len(residents) - 1)
        workloads = [resident.workload for resident in residents]
        return [
            max((pair_uncertainty(gpu.name, own, other) for other in others), default=0.0)
            if len(others) < 2 and all(pair_slowdown(gpu.name, own, other) for other in others)
            else turns
            for own, others in each_beside(workloads)
        ]


register_sharing_model(TIME_SLICE, TimeSlicing())
