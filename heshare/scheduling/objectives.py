"""The energy consumption model of stage 1 (Section III-B 1, Eqs. 1-10), vectorised over many schemes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.pareto import round_significant
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiled import njit
from heshare.shared.errors import InputError, require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


class SoloCosts(NamedTuple):
    """What an operator of stage 1 needs of an instance, as arrays for compiled functions.

    GPUs of a type have equal times and energies, so these are stored by type.

    Attributes:
        time_s: time of each task alone on each type of GPU, s, shape (n, kinds); infinite where it does not fit.
        energy_j: energy likewise, J, shape (n, kinds).
        best_s: time of each task on the fastest GPU, s, shape (n,).
        best_j: energy of each task on the GPU that needs the least, J, shape (n,).
        spt_order: tasks in order of execution time on each type (shortest processing time first), shape (kinds, n).
        spt_rank: position of each task in this order, shape (kinds, n).
        kind_of: type of each GPU, shape (k,).
        begin_s: time at which each GPU can begin, s, shape (k,).
    """

    time_s: FloatArray
    energy_j: FloatArray
    best_s: FloatArray
    best_j: FloatArray
    spt_order: IntArray
    spt_rank: IntArray
    kind_of: IntArray
    begin_s: FloatArray


@dataclass(frozen=True)
class Instance:
    """Problem instance of stage 1: predicted time and energy of each of n tasks alone on each of k GPUs.

    Attributes:
        tasks: the task set T, shape (n,); the position of a task is its index in every array.
        cluster: the GPU set G.
        time_s: time of the whole task alone at the default clock, s, shape (n, k); infinite where it does not fit.
        energy_j: energy of the whole task alone, J, shape (n, k); infinite where it does not fit.
        fits: whether the task fits the GPU's memory, shape (n, k).
        needs_mib: device memory of each task, MiB, shape (n,).
        ready_s: time at which each GPU can begin, s, shape (k,); empty if all begin at once.
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
        """Time at which each GPU can begin, s, shape (k,)."""
        return self.ready_s if len(self.ready_s) else np.zeros(self.k)

    @cached_property
    def kinds(self) -> tuple[Gpu, ...]:
        """The distinct types of GPU."""
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
    def time_of_kind(self) -> FloatArray:
        """Time of each task on each type of GPU, s, shape (n, kinds)."""
        return self.time_s[:, self.first_of_kind]

    @cached_property
    def energy_of_kind(self) -> FloatArray:
        """Energy of each task on each type of GPU, J, shape (n, kinds)."""
        return self.energy_j[:, self.first_of_kind]

    @cached_property
    def fits_of_kind(self) -> BoolArray:
        """Whether each task fits each type of GPU, shape (n, kinds)."""
        return self.fits[:, self.first_of_kind]

    @cached_property
    def order_of_kind(self) -> IntArray:
        """Shortest-processing-time (SPT) order of the tasks on each type of GPU, ties by index, shape (kinds, n)."""
        return np.argsort(round_significant(self.time_of_kind).T, axis=1, kind="stable")

    @cached_property
    def solo(self) -> SoloCosts:
        """The instance by type of GPU, as arrays for compiled functions."""
        return SoloCosts(
            time_s=np.ascontiguousarray(self.time_of_kind),
            energy_j=np.ascontiguousarray(self.energy_of_kind),
            best_s=self.best_s,
            best_j=self.best_j,
            spt_order=np.ascontiguousarray(self.order_of_kind),
            spt_rank=np.argsort(self.order_of_kind, axis=1),
            kind_of=self.kind_of,
            begin_s=self.begin_s,
        )

    @cached_property
    def usage(self) -> FloatArray:
        """Log time, power over TDP, and memory over capacity of each task on each type of GPU, shape (kinds, n, 3).

        Task recovery (Section III-B 2c) calls tasks similar whose usage of resources is.
        """
        time_s = np.where(self.fits_of_kind, self.time_of_kind, 1.0)
        power_w = np.where(self.fits_of_kind, self.energy_of_kind, 0.0) / time_s
        tdp_w = np.array([gpu.tdp_w for gpu in self.kinds])
        capacity_mib = np.array([gpu.memory_mib for gpu in self.kinds])
        usage = np.stack((np.log(time_s), power_w / tdp_w, self.needs_mib[:, None] / capacity_mib), axis=2)
        return np.ascontiguousarray(usage.transpose(1, 0, 2))

    @cached_property
    def options(self) -> tuple[IntArray, IntArray]:
        """The GPUs that each task fits, first in each row, shape (n, k), and their number, shape (n,)."""
        return np.argsort(~self.fits, axis=1, kind="stable"), self.fits.sum(axis=1)

    @cached_property
    def best_j(self) -> FloatArray:
        """Energy of each task on the GPU that needs the least, J, shape (n,)."""
        return cast(FloatArray, self.energy_j.min(axis=1))

    @cached_property
    def best_s(self) -> FloatArray:
        """Time of each task on the fastest GPU, s, shape (n,)."""
        return cast(FloatArray, self.time_s.min(axis=1))


def fit_mask(tasks: Sequence[Task], cluster: Cluster) -> BoolArray:
    """Return whether each of n tasks fits each of k GPUs, shape (n, k); an `InputError` for one that fits none."""
    require("tasks", "no tasks", bool(tasks), "at least one task", "Give a task set to plan.")
    needs_mib = np.array([memory_mib(task.workload) for task in tasks])
    capacity_mib = np.array([gpu.memory_mib for gpu in cluster.gpus])
    fits = needs_mib[:, None] <= capacity_mib

    too_large = np.flatnonzero(~fits.any(axis=1))
    if len(too_large):
        first = int(too_large[0])
        task = tasks[first]
        raise InputError(
            f"task {task.id}, {task.workload}, which needs {needs_mib[first]:.0f} MiB and fits no GPU of {cluster}",
            f"at most {capacity_mib.max():.0f} MiB",
            "Give it a smaller inference batch size, or add a GPU with more memory.",
            column="tasks",
        )
    return fits


def numbered_workloads(tasks: Sequence[Task]) -> tuple[list[Workload], IntArray]:
    """Return the distinct workloads of tasks, ascending, and the index of each task's workload in them, shape (n,)."""
    workloads = sorted({task.workload for task in tasks})
    number = {workload: index for index, workload in enumerate(workloads)}
    return workloads, np.array([number[task.workload] for task in tasks], dtype=np.int64)


def make_instance(
    tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, ready_s: FloatArray | None = None
) -> Instance:
    """Return the instance of a task set: predict each task alone on each type of GPU at its default clock.

    The predictor returns the total power (Eq. 5), which Eq. 4 splits into static, dynamic and idle power. Energy is
    power times time; Eq. 6 of the paper equates energy and power. `ready_s` is the time at which each GPU can begin
    with these tasks, s from now, shape (k,); at once unless given.

    Raises:
        InputError: there is no task, or a task fits no GPU.
    """
    fits = fit_mask(tasks, cluster)
    workloads, workload_of = numbered_workloads(tasks)
    iterations = np.array([task.iterations for task in tasks])
    time_s = np.full(fits.shape, np.inf)
    energy_j = np.full(fits.shape, np.inf)

    for kind in cluster.kinds:
        gpus = np.array([index for index, gpu in enumerate(cluster.gpus) if gpu == kind])
        fitting = np.flatnonzero(fits[:, gpus[0]])
        # A workload that is too large for this type may have no prediction there.
        known, place = np.unique(workload_of[fitting], return_inverse=True)
        if not len(known):
            continue

        alone = predictor.solo([workloads[number] for number in known], kind)
        whole_s = alone.time_s[place, 0] * iterations[fitting]
        time_s[np.ix_(fitting, gpus)] = whole_s[:, None]
        energy_j[np.ix_(fitting, gpus)] = (whole_s * alone.power_w[place])[:, None]

    needs_mib = np.array([memory_mib(task.workload) for task in tasks])
    begin_s = np.zeros(0) if ready_s is None else np.asarray(ready_s, dtype=np.float64)
    return Instance(tuple(tasks), cluster, time_s, energy_j, fits, needs_mib, begin_s)


@njit(cache=True)
def segment_costs(schemes: IntArray, solo: SoloCosts) -> FloatArray:
    """Return [energy in J (Eq. 6), sum of JCTs in s (Eq. 8)] of each GPU's subset of tasks, shape (p, k, 2).

    A GPU runs its tasks one after the other in SPT order, alone at the default clock. The JCT of a task (Eq. 8) is
    its waiting time, which is the time of all tasks before it, plus its own time. So the sum of JCTs is the sum of
    times, each weighted by the number of tasks that are not done before it.

    Args:
        schemes: the GPU of each task in each scheme, shape (p, n).
        solo: times and energies of the tasks alone, `Instance.solo`.
    """
    p, n = schemes.shape
    costs = np.zeros((p, len(solo.kind_of), 2))
    waiting = np.zeros(len(solo.kind_of), dtype=np.int64)

    for row in range(p):
        scheme = schemes[row]
        for gpu in range(len(waiting)):
            waiting[gpu] = 0
        for task in range(n):
            waiting[scheme[task]] += 1

        # The SPT order of a type of GPU visits the queues of all GPUs of that type, each in its order.
        for kind in range(len(solo.spt_order)):
            for task in solo.spt_order[kind]:
                gpu = scheme[task]
                if solo.kind_of[gpu] != kind:
                    continue
                costs[row, gpu, 0] += solo.energy_j[task, kind]
                costs[row, gpu, 1] += solo.time_s[task, kind] * waiting[gpu] + solo.begin_s[gpu]
                waiting[gpu] -= 1
    return costs


def sum_segments(costs: FloatArray, n: int) -> FloatArray:
    """Return E_total (Eq. 7) and T_avg (Eq. 9) of n tasks from `segment_costs`, shape (p, k, 2) -> (p, 2)."""
    return cast(FloatArray, costs.sum(axis=1) / np.array([1.0, n]))


def evaluate_schemes(schemes: IntArray, instance: Instance) -> FloatArray:
    """Return the objectives (Eq. 10) of p schemes, [total energy in J, average JCT in s], shape (p, n) -> (p, 2)."""
    return sum_segments(segment_costs(schemes, instance.solo), instance.n)
