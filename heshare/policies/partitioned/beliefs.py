"""What a predictor says of tasks in MIG instances, as MISO wants it: slowdowns against the whole GPU."""

from __future__ import annotations

import numpy as np

from heshare.devices.sharing.mig import MEMORY_SLICES, least
from heshare.prediction.predictor import FloatArray, Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

SLICES: tuple[int, ...] = tuple(MEMORY_SLICES)
"""Compute slices of the kinds of instance, ascending."""


class InstanceBeliefs:
    """Predicted speeds in MIG instances, each question asked once.

    Args:
        predictor: what the systems believe.
        error: mean size of the further error of a relative speed, of either sign.
        error_spread: standard deviation of that size.
        rng: where those errors come from; drawn once for each workload and GPU.
    """

    def __init__(self, predictor: Predictor, error: float, error_spread: float, rng: np.random.Generator) -> None:
        self._predictor = predictor
        self._error, self._error_spread, self._rng = error, error_spread, rng
        self._known: dict[tuple[Workload, Gpu], FloatArray] = {}

    def slowdowns(self, workload: Workload, gpu: Gpu) -> FloatArray:
        """Time in each kind of instance over that on the whole GPU, shape (5,); `inf` where it does not fit."""
        if (workload, gpu) not in self._known:
            self._known[workload, gpu] = self._ask(workload, gpu)
        return self._known[workload, gpu]

    def least(self, workload: Workload, gpu: Gpu) -> int | None:
        """Compute slices of the smallest instance that holds a workload; None if even the whole GPU does not."""
        return least(gpu, memory_mib(workload))

    def _ask(self, workload: Workload, gpu: Gpu) -> FloatArray:
        sets = [(Resident(workload, 100, f"mig-{slices}g"),) for slices in SLICES]
        times_s = self._predictor.co_run(sets, gpu, [None] * len(sets)).time_s[:, 0]
        speeds = times_s[-1] / times_s
        sizes = self._rng.normal(self._error, self._error_spread, len(speeds))
        speeds = np.maximum(speeds + np.where(self._rng.random(len(speeds)) > 0.5, -sizes, sizes), 1e-3)
        needed = self.least(workload, gpu)
        holds = np.array([needed is not None and slices >= needed for slices in SLICES])
        return np.where(holds, speeds[-1] / speeds, np.inf)
