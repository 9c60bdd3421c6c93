"""What a predictor says of tasks in MIG instances, as MISO wants it: slowdowns against the whole GPU.

MISO's search: which partition of a GPU, and who gets which instance of it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from heshare.arrays import FloatArray
from heshare.prediction.predictor import Predictor
from heshare.systems.miso.mig import MEMORY_SLICES, Partition, least, placeable
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

SLICES: tuple[int, ...] = tuple(MEMORY_SLICES)
"""Compute slices of the kinds of instance, ascending."""


class InstancePredictions:
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


PUBLISHED: tuple[Partition, ...] = (
    (7,), (4, 2, 1), (4, 1, 1, 1), (3, 3), (3, 2, 1), (3, 1, 1, 1), (3, 2, 2), (3, 2, 1, 1), (3, 1, 1, 1, 1),
    (2, 2, 2, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1),
)  # fmt: skip
"""The partitions that MISO's code searches: its 18 codes without those that differ in the order of instances only.

(4, 3), which the A100 offers as well, is not among them.
"""
OBJECTIVES = ("slowdown", "throughput")


def choices(name: str) -> tuple[Partition, ...]:
    """The partitions to search: `published` ones, or `all` sets of instances that a GPU can hold."""
    return PUBLISHED if name == "published" else tuple(sorted(placeable() - {()}, reverse=True))


def best(
    slowdowns: ArrayLike, slices: Sequence[int], partitions: Sequence[Partition], objective: str = "slowdown"
) -> tuple[int, ...] | None:
    """The instance of each task under the best partition with exactly one instance a task.

    Exact: the best permutation of a partition is an assignment problem, so that trying all permutations, as MISO does,
    finds nothing better.

    Args:
        slowdowns: time in an instance over time on the whole GPU, shape (tasks, slices); `inf` where a task does not
            fit.
        slices: compute slices of each column.
        partitions: those to search; the first of equally good ones is taken.
        objective: `slowdown` minimises the mean slowdown, `throughput` maximises the sum of `1 / slowdown`.

    Returns:
        Compute slices for each task; None if no partition holds them all.
    """
    table = np.asarray(slowdowns, dtype=np.float64)
    cost = table if objective == "slowdown" else -1.0 / table
    column = {one: at for at, one in enumerate(slices)}
    found: tuple[int, ...] | None = None
    least = np.inf
    for partition in partitions:
        if len(partition) != len(table):
            continue
        columns = [column[one] for one in partition]
        rows, chosen = _assigned(cost[:, columns], np.isfinite(table[:, columns]))
        if rows is None:
            continue
        value = float(cost[rows, [columns[at] for at in chosen]].mean())
        if value < least - 1e-12:
            least, found = value, tuple(partition[at] for at in chosen)
    return found


def _assigned(cost: np.ndarray, fits: np.ndarray) -> tuple[np.ndarray | None, list[int]]:
    """The permutation of least cost that only uses what fits; None if there is none."""
    worst = np.abs(cost[fits]).sum() + 1.0 if fits.any() else 1.0
    rows, columns = linear_sum_assignment(np.where(fits, cost, 2 * worst))
    return (rows, columns.tolist()) if fits[rows, columns].all() else (None, [])
