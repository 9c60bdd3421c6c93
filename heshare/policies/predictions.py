"""Cached predictions for policies: a task alone at each clock, its latency limit, its sensitivity, sets of tasks."""

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import FloatArray
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


class TaskPredictions:
    """Predictions of tasks alone and of sets of tasks, each computed once.

    `limit` is the latency limit, as a multiple of the time alone at the top clock.
    """

    def __init__(self, predictor: Predictor, limit: float = 1.5) -> None:
        self._predictor = predictor
        self._limit = limit
        self._alone: dict[tuple[Workload, Gpu, int], float] = {}
        self._sets: dict[tuple[tuple[Resident, ...], Gpu], tuple[FloatArray, FloatArray]] = {}

    def alone_s(self, workload: Workload, gpu: Gpu, sm_mhz: int | None = None) -> float:
        """Return seconds per iteration alone at 100 %, at the top clock unless another is given."""
        key = (workload, gpu, gpu.max_mhz if sm_mhz is None else sm_mhz)
        if key not in self._alone:
            self._alone[key] = float(self._predictor.solo([workload], gpu, key[2]).time_s[0, 0])
        return self._alone[key]

    def whole_s(self, task: Task, gpu: Gpu) -> float:
        """Return the time of the whole task alone at the top clock, s."""
        return task.iterations * self.alone_s(task.workload, gpu)

    def limit_s(self, workload: Workload, gpu: Gpu) -> float:
        """Return the latency limit, the longest time that an iteration may take, s."""
        return self._limit * self.alone_s(workload, gpu)

    def sensitivity(self, workload: Workload, gpu: Gpu) -> float:
        """Return the sensitivity of a workload to the clock: 1 if time is inverse to the clock, 0 if it is constant.

        s = [T(f_lo) / T(f_hi) - 1] / [f_hi / f_lo - 1]; 0 on a GPU with one clock.
        """
        low, high = gpu.clocks_mhz[0], gpu.max_mhz
        if low == high:
            return 0.0
        return (self.alone_s(workload, gpu, low) / self.alone_s(workload, gpu) - 1) / (high / low - 1)

    def least_clock(self, workload: Workload, gpu: Gpu) -> int:
        """Return the least clock index from which on the workload alone meets its limit; at most that of the top."""
        times_s = self.at_clocks((Resident(workload),), gpu)[0][:, 0]
        missed = np.flatnonzero(times_s > self.limit_s(workload, gpu) * (1 + 1e-9))
        return min(int(missed[-1]) + 1, len(gpu.clocks_mhz) - 1) if len(missed) else 0

    def at_clocks(self, residents: tuple[Resident, ...], gpu: Gpu) -> tuple[FloatArray, FloatArray]:
        """Return times per iteration, s, (c, r), and power, W, (c,), of r residents at each of c clocks of the GPU."""
        ordered = tuple(sorted(residents))
        if (ordered, gpu) not in self._sets:
            predicted = self._predictor.co_run([ordered] * len(gpu.clocks_mhz), gpu, gpu.clocks_mhz)
            self._sets[ordered, gpu] = predicted.time_s, predicted.power_w
        times_s, power_w = self._sets[ordered, gpu]
        column = np.argsort(sorted(range(len(residents)), key=lambda index: residents[index]))
        return times_s[:, column], power_w
