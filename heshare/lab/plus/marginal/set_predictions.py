"""Predictions of sets of workloads that share a GPU, each computed once, and the cheapest clock of each.

Example: at a price of 10 W a task on the toy GPU costs (100 + 10) W x 1 s an iteration at its top clock, and
(50 + 10) W x 2 s at half of it.

>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> sets = SetPredictions(ToyPredictor(), clocks=2, price_w=10.0)
>>> sets.predict(toy_gpu(), [(Workload("mobilenet", 4),)])
>>> sets.mhz(toy_gpu(), (Workload("mobilenet", 4),), queued=0)
1000
"""

from collections.abc import Iterable
from functools import cache
from itertools import combinations

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import FloatArray
from heshare.world.gpu import Gpu, spread_clocks
from heshare.world.workload import Resident, Workload

Set = tuple[Workload, ...]
"""Workloads that share a GPU, sorted."""


class SetPredictions:
    """Predictions of sets of workloads at a few clocks of each GPU; each set is predicted once.

    Args:
        predictor: predicts times and powers.
        clocks: the number of clocks of a GPU's grid, spread evenly.
        price_w: p, the cost of a second in the system, W.
    """

    def __init__(self, predictor: Predictor, clocks: int, price_w: float) -> None:
        self.price_w = price_w
        self.clocks = clocks
        self._predictor = predictor
        self._predicted: dict[tuple[Gpu, Set], tuple[FloatArray, FloatArray]] = {}

    def predict(self, gpu: Gpu, sets: Iterable[Set]) -> None:
        """Predict sets and their subsets, which remain as tasks end, as far as they are new; all in one call."""
        missing = [whole for whole in sets if (gpu, whole) not in self._predicted]
        parts = {part for whole in missing for size in range(1, len(whole) + 1) for part in combinations(whole, size)}
        new = sorted(part for part in parts if (gpu, part) not in self._predicted)
        if not new:
            return
        grid = clock_grid(gpu, self.clocks)
        residents = [tuple(Resident(workload) for workload in part) for part in new for _ in grid]
        runs = self._predictor.co_run(residents, gpu, grid * len(new))
        for number, part in enumerate(new):
            rows = slice(number * len(grid), (number + 1) * len(grid))
            self._predicted[gpu, part] = runs.time_s[rows, : len(part)], runs.power_w[rows]

    def of(self, gpu: Gpu, running: Set) -> tuple[FloatArray, FloatArray]:
        """Return seconds per iteration, shape (c, n), and power, W, (c,), of a predicted set at each clock."""
        return self._predicted[gpu, running]

    def alone_s(self, gpu: Gpu, workload: Workload) -> float:
        """Return the seconds per iteration alone at the top clock."""
        return float(self._predicted[gpu, (workload,)][0][-1, 0])

    def relative_costs(self, gpu: Gpu, running: Set) -> tuple[FloatArray, FloatArray]:
        """Return the power above idle, W, and s, the time relative to that at the top clock, at each clock, (c,)."""
        times_s, power_w = self._predicted[gpu, running]
        return power_w - gpu.idle_w, (times_s / times_s[-1]).mean(axis=1)

    def cheapest_clock(self, gpu: Gpu, running: Set, queued: int) -> int:
        """Return the index in the grid of f*, the cheapest clock of a set with so many tasks queued behind it."""
        above_w, relative_time = self.relative_costs(gpu, running)
        return int(np.argmin((above_w + self.price_w * (len(running) + queued)) * relative_time))

    def mhz(self, gpu: Gpu, running: Set, queued: int) -> int:
        """Return f*, MHz."""
        return clock_grid(gpu, self.clocks)[self.cheapest_clock(gpu, running, queued)]


@cache
def clock_grid(gpu: Gpu, clocks: int) -> list[int]:
    """Return so many clocks of a GPU's grid, evenly spread with the top one, MHz."""
    return list(spread_clocks(gpu.clocks_mhz, clocks))
