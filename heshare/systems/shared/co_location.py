"""Co-location history: times of jobs that share a GPU by time slices, measured or predicted.

EaCO keeps a history of sets of jobs. It begins with measurements, and EaCO adds what it observes. Gandiva profiles the
pairs that it tries. A set that was never measured is predicted by the predictor that every policy uses (assumed).
"""

from collections.abc import Sequence

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.systems.shared.training import MeasuredSet, measured_sets, step
from heshare.systems.shared.training_step import busy_alone
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

TIME_SLICE = "time-slice"


class CoLocationHistory:
    """Times per iteration of sets of workloads on one GPU, and GPU utilisation of workloads alone.

    Args:
        predictor: predicts a set that was never observed.
        measured: whether the history begins with the sets that EaCO measured, on the GPU on which they ran.
    """

    def __init__(self, predictor: Predictor, *, measured: bool = True) -> None:
        self._predictor = predictor
        self._times_s: dict[tuple[Gpu, tuple[Workload, ...]], dict[Workload, float]] = {}
        self._slowdowns = _measured_slowdowns() if measured else {}

    def times_s(self, gpu: Gpu, workloads: Sequence[Workload]) -> list[float]:
        """Return seconds per iteration of each of the workloads while all of them share a GPU at its own clock."""
        ordered = tuple(sorted(workloads))
        times_s = self._times_s.get((gpu, ordered))
        if times_s is None:
            times_s = self._times_s[gpu, ordered] = self._predict(gpu, ordered)
        return [times_s[workload] for workload in workloads]

    def alone_s(self, gpu: Gpu, workload: Workload) -> float:
        """Return seconds per iteration of a workload alone."""
        return self.times_s(gpu, [workload])[0]

    def throughput(self, gpu: Gpu, workloads: Sequence[Workload]) -> float:
        """Return the sum of the members' speeds, each over its speed alone; 1 is that of one member alone."""
        together_s = self.times_s(gpu, workloads)
        return sum(self.alone_s(gpu, own) / time_s for own, time_s in zip(workloads, together_s, strict=True))

    def record(self, gpu: Gpu, times_s: Sequence[tuple[Workload, float]]) -> None:
        """Store what was observed: the members of a set that shared a GPU and their times per iteration, s."""
        self._times_s[gpu, tuple(sorted(workload for workload, _ in times_s))] = dict(times_s)

    def utilisation(self, gpu: Gpu, workloads: Sequence[Workload]) -> float:
        """Return the GPU utilisation of a set, 0 to 1: the sum of that of its members alone."""
        return min(1.0, sum(busy_alone(gpu, workload) for workload in workloads))

    def _predict(self, gpu: Gpu, ordered: tuple[Workload, ...]) -> dict[Workload, float]:
        slowdown = self._slowdowns.get((gpu.name, ordered))
        if slowdown is not None:
            return {workload: slowdown * self.alone_s(gpu, workload) for workload in ordered}
        sharing = TIME_SLICE if len(ordered) > 1 else "mps"
        residents = tuple(Resident(workload, sharing=sharing) for workload in ordered)
        times_s = self._predictor.co_run([residents], gpu, [None]).time_s[0]
        return {workload: float(time_s) for workload, time_s in zip(ordered, times_s, strict=True)}


def _measured_slowdowns() -> dict[tuple[str, tuple[Workload, ...]], float]:
    """Return EaCO's slowdown of each set of two and more, its run time over the mean of its members alone, by GPU."""
    alone_h = {entry.workloads[0]: entry.runtime_h for entry in measured_sets() if len(entry.workloads) == 1}

    def slowdown(entry: MeasuredSet) -> float:
        return entry.runtime_h / float(np.mean([alone_h[workload] for workload in entry.workloads]))

    return {
        (step(entry.workloads[0]).gpu, tuple(sorted(entry.workloads))): slowdown(entry)
        for entry in measured_sets()
        if len(entry.workloads) > 1
    }
