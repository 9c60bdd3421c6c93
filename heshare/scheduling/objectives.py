"""The energy consumption model of stage 1 (Section III-B 1, Eqs. 1-10), vectorised over a population of schemes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from heshare.errors import InputError
from heshare.prediction.predictor import Predictor
from heshare.scheduling.pareto import significant
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Instance:
    """A task set on a cluster as stage 1 sees it: each of n tasks alone on each of k GPUs at the default clock.

    Attributes:
        tasks: the task set T, shape (n,); a task's position here is its index in every array.
        cluster: the GPU set G.
        time_s: predicted time of the whole task alone, s, shape (n, k); infinite where it does not fit.
        energy_j: predicted energy of the whole task alone, J, shape (n, k); infinite where it does not fit.
        fits: whether the task fits the GPU's memory, shape (n, k).
        needs_mib: device memory of each task, MiB, shape (n,).
        ready_s: when each GPU begins with its tasks, s, shape (k,); empty where all begin at once.
    """

    tasks: tuple[Task, ...]
    cluster: Cluster
    time_s: FloatArray
    energy_j: FloatArray
    fits: BoolArray
    needs_mib: FloatArray
    ready_s: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def n(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    @property
    def k(self) -> int:
        """Number of GPUs."""
        return len(self.cluster)

    @cached_property
    def begin_s(self) -> FloatArray:
        """When each GPU begins with its tasks, s, shape (k,)."""
        return self.ready_s if len(self.ready_s) else np.zeros(self.k)

    @cached_property
    def kinds(self) -> tuple[Gpu, ...]:
        """The different types of GPU."""
        return self.cluster.kinds

    @cached_property
    def kind_of(self) -> IntArray:
        """Index in `kinds` of each GPU, shape (k,)."""
        index = {gpu: kind for kind, gpu in enumerate(self.kinds)}
        return np.array([index[gpu] for gpu in self.cluster.gpus], dtype=np.int64)

    @cached_property
    def first_of_kind(self) -> IntArray:
        """The first GPU of each type, shape (kinds,)."""
        return np.unique(self.kind_of, return_index=True)[1]

    @cached_property
    def order_of_kind(self) -> IntArray:
        """SPT order on each type of GPU: the tasks by time alone, ties by index, shape (kinds, n)."""
        return np.argsort(significant(self.time_s[:, self.first_of_kind]).T, axis=1, kind="stable")

    @cached_property
    def options(self) -> tuple[IntArray, IntArray]:
        """The GPUs that each task fits, first in each row, shape (n, k), and how many they are, shape (n,)."""
        return np.argsort(~self.fits, axis=1, kind="stable"), self.fits.sum(axis=1)

    @cached_property
    def order(self) -> IntArray:
        """SPT order: on each GPU, the tasks by time alone, ties by index, shape (k, n)."""
        return np.argsort(significant(self.time_s).T, axis=1, kind="stable")

    @cached_property
    def rank(self) -> IntArray:
        """The position of each task in each GPU's SPT order, shape (n, k)."""
        return np.argsort(self.order, axis=1).T.copy()

    @cached_property
    def best_j(self) -> FloatArray:
        """The least energy that each task needs anywhere, J, shape (n,)."""
        return cast(FloatArray, self.energy_j.min(axis=1))

    @cached_property
    def best_s(self) -> FloatArray:
        """The least time that each task needs anywhere, s, shape (n,)."""
        return cast(FloatArray, self.time_s.min(axis=1))

    def part(self, tasks: IntArray, gpus: IntArray) -> Instance:
        """Some of the tasks on some of the GPUs, both by index in the order wanted."""
        both = np.ix_(tasks, gpus)
        return Instance(
            tuple(self.tasks[task] for task in tasks.tolist()),
            Cluster(tuple(self.cluster.gpus[gpu] for gpu in gpus.tolist())),
            self.time_s[both],
            self.energy_j[both],
            self.fits[both],
            self.needs_mib[tasks],
            self.begin_s[gpus],
        )


def fit_mask(tasks: Sequence[Task], cluster: Cluster) -> BoolArray:
    """Whether each of n tasks fits the memory of each of k GPUs, shape (n, k).

    Raises:
        InputError: there is no task, or one fits no GPU; the message names it.
    """
    if not tasks:
        raise InputError(
            column="tasks", found="no tasks", expected="at least one task", action="Give a task set to plan."
        )
    needs = np.array([memory_mib(task.workload) for task in tasks])
    fits = needs[:, None] <= np.array([gpu.memory_mib for gpu in cluster.gpus])
    lost = np.flatnonzero(~fits.any(axis=1))
    if len(lost):
        task = tasks[int(lost[0])]
        raise InputError(
            column="tasks",
            found=f"task {task.id}, {task.workload}, which needs {needs[lost[0]]:.0f} MiB and fits no GPU of {cluster}",
            expected=f"at most {max(gpu.memory_mib for gpu in cluster.gpus):.0f} MiB",
            action="Give it a smaller inference batch size, or add a GPU with more memory.",
        )
    return fits


def instance(
    tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, ready_s: FloatArray | None = None
) -> Instance:
    """Ask the predictor for every task alone on every type of GPU at its default clock (Eq. 5).

    Energy is power times time: Eq. 6 of the paper equates energy and power.

    Args:
        tasks: the task set.
        cluster: the GPUs.
        predictor: what is believed.
        ready_s: when each GPU begins with them, s from now, shape (k,); at once unless given.

    Raises:
        InputError: there is no task, or one fits no GPU.
    """
    fits = fit_mask(tasks, cluster)
    workloads = sorted({task.workload for task in tasks})
    which = np.array([workloads.index(task.workload) for task in tasks])
    iterations = np.array([task.iterations for task in tasks])
    time_s, energy_j = np.full(fits.shape, np.inf), np.full(fits.shape, np.inf)
    for kind in cluster.kinds:
        alone = predictor.solo(workloads, kind)
        whole_s = alone.time_s[which, 0] * iterations
        here = [index for index, gpu in enumerate(cluster.gpus) if gpu == kind]
        time_s[:, here] = whole_s[:, None]
        energy_j[:, here] = (whole_s * alone.power_w[which])[:, None]
    time_s[~fits], energy_j[~fits] = np.inf, np.inf
    needs = np.array([memory_mib(task.workload) for task in tasks])
    begin_s = np.zeros(0) if ready_s is None else np.asarray(ready_s, dtype=np.float64)
    return Instance(tuple(tasks), cluster, time_s, energy_j, fits, needs, begin_s)


@dataclass(frozen=True, slots=True)
class Queues:
    """The sequential SPT execution of p schemes: tasks sorted by (GPU, time alone), with where each GPU's begin.

    Attributes:
        key: `gpu * n + SPT position` of each task, ascending, shape (p, n).
        gpu: the GPU of each sorted task, shape (p, n).
        task: the index of each sorted task, shape (p, n).
        end: the position after each GPU's last task, shape (p, k).
        time_s: time alone of each sorted task, s, shape (p, n).
    """

    key: IntArray
    gpu: IntArray
    task: IntArray
    end: IntArray
    time_s: FloatArray


def queues(schemes: IntArray, world: Instance) -> Queues:
    """Sort the tasks of p schemes (GPU indices, shape (p, n)) into the queues of their GPUs."""
    p, n = schemes.shape
    key = np.sort(schemes * n + world.rank[np.arange(n), schemes], axis=1)
    gpu, position = np.divmod(key, n)
    task = world.order[gpu, position]
    counts = np.bincount((gpu + world.k * np.arange(p)[:, None]).ravel(), minlength=p * world.k)
    end = np.cumsum(counts.reshape(p, world.k), axis=1)
    return Queues(key, gpu, task, end, world.time_s[task, gpu])


def segments(schemes: IntArray, world: Instance, line: Queues | None = None) -> FloatArray:
    """What each GPU's subset of tasks costs: [energy in J, sum of JCTs in s], shape (p, k, 2).

    A GPU runs its tasks one after the other, shortest first, alone at the default clock. A task delays itself and
    all behind it, so the sum of JCTs (Eq. 8) is the sum of times, each weighted by how many are not yet done.
    """
    line = line or queues(schemes, world)
    weight = np.take_along_axis(line.end, line.gpu, axis=1) - np.arange(schemes.shape[1])
    energy_j = sum_by_gpu(line.gpu, world.energy_j[line.task, line.gpu], world.k)
    jct_s = sum_by_gpu(line.gpu, line.time_s * weight + world.begin_s[line.gpu], world.k)
    return np.stack((energy_j, jct_s), axis=2)


def sum_by_gpu(gpu: IntArray, value: FloatArray, k: int) -> FloatArray:
    """In each row add up the values by the GPU that they stand at, shapes (p, n), (p, n) -> (p, k)."""
    p = len(gpu)
    place = (gpu + k * np.arange(p)[:, None]).ravel()
    total: FloatArray = np.bincount(place, value.ravel(), p * k).astype(np.float64)
    return total.reshape(p, k)


def objectives(schemes: IntArray, world: Instance) -> FloatArray:
    """[total energy in J (Eq. 7), average JCT in s (Eq. 9)] of p schemes, shape (p, n) -> (p, 2)."""
    return totals(segments(schemes, world), world.n)


def totals(parts: FloatArray, n: int) -> FloatArray:
    """Add up segments, shape (p, k, 2), to objectives, shape (p, 2), of n tasks (Eqs. 7 and 9)."""
    return cast(FloatArray, parts.sum(axis=1) / np.array([1.0, n]))
