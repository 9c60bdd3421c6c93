"""MISO's search for the best MIG partition of a GPU and the instance of each task, and the speeds that it predicts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from heshare.lab.systems.miso.mig import SLICES, Partition, least, placeable
from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import FloatArray
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

PUBLISHED: tuple[Partition, ...] = (
    (7,), (4, 2, 1), (4, 1, 1, 1), (3, 3), (3, 2, 1), (3, 1, 1, 1), (3, 2, 2), (3, 2, 1, 1), (3, 1, 1, 1, 1),
    (2, 2, 2, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1),
)  # fmt: skip
"""The partitions that MISO's code searches: its 18 codes without those that differ in the order of instances only.

(4, 3), which the A100 offers as well, is not among them.
"""
OBJECTIVES = ("slowdown", "throughput")


class InstancePredictions:
    """Predicted slowdowns in MIG instances; each workload is predicted once for each GPU.

    Args:
        predictor: predicts times in instances.
        error: mean size of the further error of a relative speed, of either sign.
        error_spread: standard deviation of that size.
        rng: draws those errors, once for each workload and GPU.
    """

    def __init__(self, predictor: Predictor, error: float, error_spread: float, rng: np.random.Generator) -> None:
        self._predictor = predictor
        self._error, self._error_spread, self._rng = error, error_spread, rng
        self._known: dict[tuple[Workload, Gpu], FloatArray] = {}

    def slowdowns(self, workload: Workload, gpu: Gpu) -> FloatArray:
        """Return the time in each kind of instance over that on the whole GPU, shape (5,); `inf` where it does not fit.

        Kinds are those of `SLICES`.
        """
        if (workload, gpu) not in self._known:
            self._known[workload, gpu] = self._predict(workload, gpu)
        return self._known[workload, gpu]

    def _predict(self, workload: Workload, gpu: Gpu) -> FloatArray:
        sets = [(Resident(workload, 100, f"mig-{slices}g"),) for slices in SLICES]
        times_s = self._predictor.co_run(sets, gpu, [None] * len(sets)).time_s[:, 0]
        speeds = times_s[-1] / times_s
        sizes = self._rng.normal(self._error, self._error_spread, len(speeds))
        speeds = np.maximum(speeds + np.where(self._rng.random(len(speeds)) > 0.5, -sizes, sizes), 1e-3)
        holds = np.array(SLICES) >= (least(gpu, memory_mib(workload)) or np.inf)
        return np.where(holds, speeds[-1] / speeds, np.inf)


def choices(name: str) -> tuple[Partition, ...]:
    """Return the partitions to search: `published` ones, or `all` sets of instances that a GPU can hold."""
    return PUBLISHED if name == "published" else tuple(sorted(placeable() - {()}, reverse=True))


def best(slowdowns: ArrayLike, partitions: Sequence[Partition], objective: str = "slowdown") -> tuple[int, ...] | None:
    """Return the compute slices of each task under the best partition with exactly one instance a task.

    Exact: the best permutation of a partition is an assignment problem, so that trying all permutations, as MISO does,
    finds nothing better.

    Args:
        slowdowns: time in an instance over time on the whole GPU, shape (tasks, kinds of `SLICES`); `inf` where a task
            does not fit.
        partitions: those to search; the first of equally good ones is taken.
        objective: `slowdown` minimises the mean slowdown, `throughput` maximises the sum of `1 / slowdown`.

    Returns:
        None if no partition holds all tasks.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    table = np.asarray(slowdowns, dtype=np.float64)
    costs = table if objective == "slowdown" else -1.0 / table
    found: tuple[int, ...] | None = None
    least_cost = np.inf
    for partition in partitions:
        if len(partition) != len(table):
            continue
        columns = [SLICES.index(slices) for slices in partition]
        cost, fits = costs[:, columns], np.isfinite(table[:, columns])
        # An instance that does not fit costs more than any assignment of those that do.
        rows, chosen = linear_sum_assignment(np.where(fits, cost, 2 * (np.abs(cost[fits]).sum() + 1.0)))
        mean = float(cost[rows, chosen].mean())
        if fits[rows, chosen].all() and mean < least_cost - 1e-12:
            least_cost, found = mean, tuple(partition[place] for place in chosen)
    return found
