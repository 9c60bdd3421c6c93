"""What is known of jobs that share a GPU by time slices: measured sets, and a prediction for those never seen.

EaCO keeps a history of job sets, begins it with measurements, and adds to it whatever it observes; Gandiva profiles the
pairs that it tries. Here a set that nobody measured is predicted by the predictor that every policy uses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heshare.devices.sharing.utilisation import busy_alone
from heshare.prediction.predictor import Predictor
from heshare.world.gpu import Gpu
from heshare.world.training import MeasuredSet, measured_sets, step
from heshare.world.workload import Resident, Workload

TIME_SLICE = "time-slice"


class History:
    """Times per iteration of sets of workloads on one GPU, and GPU utilisation of workloads alone.

    Args:
        predictor: what predicts a set that was never observed.
        measured: whether the sets that EaCO measured are known from the start, on the GPU that they ran on.
    """

    def __init__(self, predictor: Predictor, *, measured: bool = True) -> None:
        self._predictor = predictor
        self._known: dict[tuple[Gpu, tuple[Workload, ...]], dict[Workload, float]] = {}
        self._factors = _slowdowns(measured_sets()) if measured else {}

    def times_s(self, gpu: Gpu, workloads: Sequence[Workload]) -> list[float]:
        """Seconds per iteration of each of the workloads while all of them share a GPU at its own clock."""
        ordered = tuple(sorted(workloads))
        known = self._known.get((gpu, ordered))
        if known is None:
            known = self._known[gpu, ordered] = self._predicted(gpu, ordered)
        return [known[workload] for workload in workloads]

    def alone_s(self, gpu: Gpu, workload: Workload) -> float:
        """Seconds per iteration of a workload alone."""
        return self.times_s(gpu, [workload])[0]

    def throughput(self, gpu: Gpu, workloads: Sequence[Workload]) -> float:
        """Sum of the speeds of a set's members, each over its speed alone; 1 is what one of them does alone."""
        together = self.times_s(gpu, workloads)
        return sum(self.alone_s(gpu, one) / time_s for one, time_s in zip(workloads, together, strict=True))

    def record(self, gpu: Gpu, times_s: Sequence[tuple[Workload, float]]) -> None:
        """Note what was observed: the members of a set that shared a GPU and what their iterations took, s."""
        self._known[gpu, tuple(sorted(workload for workload, _ in times_s))] = dict(times_s)

    def utilisation(self, gpu: Gpu, workloads: Sequence[Workload]) -> float:
        """GPU utilisation of a set, 0 to 1, as the sum of its members' measured alone."""
        return min(1.0, sum(busy_alone(gpu, workload) for workload in workloads))

    def _predicted(self, gpu: Gpu, ordered: tuple[Workload, ...]) -> dict[Workload, float]:
        factor = self._factors.get((gpu.name, ordered))
        if factor is not None:
            return {one: factor * self.alone_s(gpu, one) for one in ordered}
        sharing = TIME_SLICE if len(ordered) > 1 else "mps"
        residents = tuple(Resident(one, sharing=sharing) for one in ordered)
        times_s = self._predictor.co_run([residents], gpu, [None]).time_s[0]
        return {one: float(time_s) for one, time_s in zip(ordered, times_s, strict=True)}


def _slowdowns(sets: Sequence[MeasuredSet]) -> dict[tuple[str, tuple[Workload, ...]], float]:
    """Measured slowdown of each set of two and more: its run time over its members' mean alone."""
    alone_h = {one.workloads[0]: one.runtime_h for one in sets if len(one.workloads) == 1}
    return {
        (step(one.workloads[0]).gpu, tuple(sorted(one.workloads))): one.runtime_h
        / float(np.mean([alone_h[workload] for workload in one.workloads]))
        for one in sets
        if len(one.workloads) > 1
    }
