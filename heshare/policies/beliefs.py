"""What a rival asks the predictor: a task alone at each clock, its limit, its sensitivity; each question once."""

from __future__ import annotations

import numpy as np

from heshare.prediction.predictor import FloatArray, Predictor
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


class Beliefs:
    """Answers of a predictor about tasks alone and sets of tasks, remembered.

    Args:
        predictor: what the systems believe.
        limit: the latency limit, as a multiple of the time alone at the top clock.
    """

    def __init__(self, predictor: Predictor, limit: float = 1.5) -> None:
        self._predictor = predictor
        self._limit = limit
        self._alone: dict[tuple[Workload, Gpu, int], float] = {}
        self._curves: dict[tuple[Workload, Gpu], FloatArray] = {}
        self._sets: dict[tuple[tuple[Resident, ...], Gpu], tuple[FloatArray, FloatArray]] = {}

    def alone_s(self, workload: Workload, gpu: Gpu, sm_mhz: int | None = None) -> float:
        """Seconds per iteration alone at 100 %, at the top clock unless another is given."""
        key = (workload, gpu, gpu.max_mhz if sm_mhz is None else sm_mhz)
        if key not in self._alone:
            self._alone[key] = float(self._predictor.solo([workload], gpu, key[2]).time_s[0, 0])
        return self._alone[key]

    def whole_s(self, task: Task, gpu: Gpu) -> float:
        """Seconds that the whole task takes alone at the top clock."""
        return task.iterations * self.alone_s(task.workload, gpu)

    def limit_s(self, workload: Workload, gpu: Gpu) -> float:
        """The latency limit: the longest time that an iteration may take, s."""
        return self._limit * self.alone_s(workload, gpu)

    def sensitivity(self, workload: Workload, gpu: Gpu) -> float:
        """How a workload answers to the clock: 1 if time grows as the clock falls, 0 if it does not care.

        s = [T(f_lo) / T(f_hi) - 1] / [f_hi / f_lo - 1]; 0 on a GPU with one clock.
        """
        low, high = gpu.clocks_mhz[0], gpu.max_mhz
        if low == high:
            return 0.0
        return (self.alone_s(workload, gpu, low) / self.alone_s(workload, gpu) - 1) / (high / low - 1)

    def curve_s(self, workload: Workload, gpu: Gpu) -> FloatArray:
        """Seconds per iteration alone at every clock of the grid, ascending clocks, shape (c,)."""
        key = (workload, gpu)
        if key not in self._curves:
            times_s, _ = self.at_clocks((Resident(workload),), gpu)
            self._curves[key] = times_s[:, 0]
        return self._curves[key]

    def least_clock(self, workload: Workload, gpu: Gpu) -> int:
        """The place in the grid from which on every clock meets the workload's limit alone; at most the top one."""
        missed = np.flatnonzero(self.curve_s(workload, gpu) > self.limit_s(workload, gpu) * (1 + 1e-9))
        return min(int(missed[-1]) + 1, len(gpu.clocks_mhz) - 1) if len(missed) else 0

    def at_clocks(self, residents: tuple[Resident, ...], gpu: Gpu) -> tuple[FloatArray, FloatArray]:
        """A set of residents at every clock of the grid: times, s, shape (c, r), and power, W, shape (c,)."""
        ordered = tuple(sorted(residents))
        if (ordered, gpu) not in self._sets:
            answer = self._predictor.co_run([ordered] * len(gpu.clocks_mhz), gpu, gpu.clocks_mhz)
            self._sets[ordered, gpu] = answer.time_s, answer.power_w
        times_s, power_w = self._sets[ordered, gpu]
        back = np.argsort(sorted(range(len(residents)), key=lambda at: residents[at]))
        return times_s[:, back], power_w
