"""PowerFlow: the least average JCT under an energy budget, by numbers of GPUs and clocks of elastic trainings.

Gu, Xie, Huang, Jin and Liu (Peking University), Energy-Efficient GPU Clusters Scheduling for Deep Learning, 2023,
arXiv 2304.06381. No code was published, and the full text was not available.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from heshare.lab.systems.power_flow.allocation import Allocation, AllocationOptions, admit, grow
from heshare.lab.systems.power_flow.buddy import BuddyAllocator, reallocate
from heshare.lab.systems.power_flow.step_models import StepModels
from heshare.lab.systems.shared.cluster_nodes import no_place, nodes
from heshare.policies.policy import Action, Event, Migrate, Pause, Policy, SetClock, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib, parallel_speed
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task

# A job with less remaining time retains its GPUs: it completes at this moment, and its completion is the next event.
_COMPLETING_S = 1e-6


class PooledTask(NamedTuple):
    task: Task
    left: float


# From its abstract: elastic trainings under an energy budget, models of throughput and energy that are fitted for each
# job, clocks and numbers of GPUs as the choices, placement by buddy allocation. From Algorithm 1 as others ported it:
# each job begins with a base allocation, and the moves of the best gain in JCT for their energy are made while GPUs and
# the budget last (`heshare.lab.systems.power_flow.allocation`). GPUs are never shared.
#
# Assumed: the forms of the models (`heshare.lab.systems.power_flow.step_models`), that jobs begin with their fewest
# GPUs at the clock of least energy and are admitted shortest remaining time first, and every default value of
# `PowerFlow`.
#
# A task with a fixed number of GPUs cannot gain GPUs. For the inference tasks of Table IV PowerFlow is therefore
# shortest remaining time first with a marginal choice of clocks.


@dataclass(frozen=True, slots=True)
class GpuPool:
    """GPUs of one type, by index, and the blocks that each job has."""

    gpu: Gpu
    gpus: tuple[int, ...]
    allocator: BuddyAllocator

    def fits(self, task: Task, gpus: int) -> bool:
        return memory_mib(task.workload) <= self.gpu.memory_mib and self.allocator.occupied(gpus) <= len(self.gpus)

    def running(self, view: View) -> dict[int, PooledTask]:
        """Return the tasks that run here, by id; the blocks of those that have completed are released."""
        tasks = {}
        for task, gpus in self.allocator.allocations().items():
            running = view.gpus[gpus[0]].running.get(task)
            if running is None:
                self.allocator.release(task)
            else:
                speed = 1.0 if len(gpus) == running.task.gpus else parallel_speed(running.task, len(gpus))
                tasks[task] = PooledTask(running.task, running.remaining * speed)
        return tasks


def make_pools(cluster: Cluster, gpus_per_node: int) -> list[GpuPool]:
    """Return a pool for each type of GPU of a cluster, all free; consecutive GPUs of a type make its nodes."""
    pools = []
    for kind in cluster.kinds:
        own = [node for node in nodes(cluster, gpus_per_node) if cluster.gpus[node[0]] == kind]
        pools.append(GpuPool(kind, tuple(gpu for node in own for gpu in node), BuddyAllocator(own)))
    return pools


class _JobModel(NamedTuple):
    """Predictions for an iteration of a task in a pool, valid during the run.

    Attributes:
        widths: numbers of GPUs on which it may run there, ascending; none if it does not fit.
        occupied: how many free GPUs each of them occupies.
        time_s: time of an iteration, s, shape (w, c).
        energy_j: energy of an iteration, J, shape (w, c).
        alone_s: time of an iteration on its requested number of GPUs at the highest clock, s.
    """

    widths: tuple[int, ...]
    occupied: tuple[int, ...]
    time_s: FloatArray
    energy_j: FloatArray
    alone_s: float

    def options(self, left: float) -> AllocationOptions:
        """Return the allocations of the task with `left` iterations."""
        return AllocationOptions(self.occupied, left * self.time_s, left * self.energy_j)


class _WaitingJob(NamedTuple):
    """A waiting job, with the predictions for it in each pool where it fits, by the index of the pool.

    Attributes:
        widths: the numbers of GPUs on which it may run.
        options: its allocations.
        alone_s: its time on its requested number of GPUs at the highest clock, s.
        shortest_s: the least of these times, s.
    """

    job: PooledTask
    widths: dict[int, tuple[int, ...]]
    options: dict[int, AllocationOptions]
    alone_s: dict[int, float]
    shortest_s: float


@dataclass(slots=True)
class _Candidates:
    """The jobs of a pool at one event: those that run there, and the waiting ones that are assigned to it.

    Attributes:
        widths: the numbers of GPUs on which each job may run, by its id.
        options: the allocations of each job.
        completing: those that complete at this moment.
        free: the other GPUs.
        work_s: the time that all GPUs of the pool together need for its jobs, s.
    """

    pool: GpuPool
    widths: dict[int, tuple[int, ...]]
    options: dict[int, AllocationOptions]
    completing: list[int]
    free: int
    work_s: float

    def order(self) -> list[int]:
        """Return the jobs that do not complete now, the shortest remaining time first."""
        staying = self.options.keys() - self.completing
        return sorted(staying, key=lambda job: (self.options[job].first_s, job))

    def is_full(self, time_s: float) -> bool:
        """Return whether jobs that need less than `time_s` are admitted to all GPUs."""
        free = self.free
        for job in self.order():
            options = self.options[job]
            if options.first_s >= time_s:
                break
            if options.widths[0] <= free:
                free -= options.widths[0]
        return free == 0


@register("power-flow", title="PowerFlow")
@register("srtf", title="SRTF", preset={"clocks": 1, "elastic": False})
@register("srtf:fixed-clock", title="SRTF at 0.8 clock", preset={"clocks": 1, "elastic": False, "ceiling": 0.8})
class PowerFlow(Policy):
    """Marginal moves over GPUs and clocks under an energy budget, placed in buddy blocks.

    On a cluster of several types of GPU (our extension) each type is planned separately, and a waiting task is assigned
    to the type on which it is predicted to complete first, given the work that is already there.

    Args:
        budget: the energy that admitted jobs may take, over that on their fewest GPUs at the top clock; assumed.
        clocks: number of clocks, spread evenly; assumed. One is the highest clock only.
        floor: the lowest clock, over the card's top one; assumed. Below it, almost no work takes less energy.
        ceiling: the highest clock, over the card's top one; the top clock unless a study lowers it.
        elastic: whether tasks may run on their other numbers of GPUs.
        gpus_per_node: consecutive GPUs of a type that make a node; assumed.

    Attributes:
        models: the fitted models of every workload since the last reset.
    """

    name = "power-flow"
    models: StepModels

    def __init__(
        self,
        budget: float = 0.9,
        clocks: int = 8,
        floor: float = 0.4,
        ceiling: float = 1.0,
        elastic: bool = True,
        gpus_per_node: int = 8,
    ) -> None:
        require("budget", budget, 0 < budget <= 10, "a share above 0 and at most 10, such as 0.9 for 90 %")
        require("clocks", clocks, clocks >= 1, "at least one clock")
        require("floor", floor, 0 < floor <= ceiling, "a share of the top clock, above 0, at most the ceiling")
        require("ceiling", ceiling, 0 < ceiling <= 1, "a share of the top clock, above 0, at most 1")
        require("gpus_per_node", gpus_per_node, gpus_per_node >= 1, "at least one GPU")
        self.traits = Traits(frequency=clocks > 1 or ceiling < 1, multi_task=False, heterogeneous=True)
        self._budget, self._elastic, self._per_node = budget, elastic, gpus_per_node
        self._model = clocks, floor, ceiling

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self.models = StepModels(predictor, *self._model)
        self._pools = make_pools(cluster, self._per_node)
        self._job_models: dict[tuple[int, int], _JobModel] = {}
        self._waiting: dict[int, _WaitingJob] = {}
        # The waiting jobs by the shortest time in any pool, and those that may run on several numbers of GPUs.
        self._by_time: list[tuple[float, int]] = []
        self._elastic_jobs: set[int] = set()

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        self._update_waiting(view)
        candidates = [self._candidates(at, view) for at in range(len(self._pools))]
        self._assign(candidates)
        for each in candidates:
            yield from self._plan(each, view)

    def _update_waiting(self, view: View) -> None:
        """Remove the jobs that no longer wait, and predict for new ones; predictions of waiting jobs are constant.

        Raises:
            InputError: a job that fits in no pool.
        """
        for job in self._waiting.keys() - view.remaining.keys():
            left = self._waiting.pop(job)
            del self._by_time[bisect_left(self._by_time, (left.shortest_s, job))]
            self._elastic_jobs.discard(job)

        new = view.remaining.keys() - self._waiting.keys()
        if not new:
            return
        for task in view.waiting:
            if task.id in new:
                self._add_waiting(PooledTask(task, view.remaining[task.id]))
        self._by_time.sort()

    def _add_waiting(self, job: PooledTask) -> None:
        models = {at: self._model_of(job.task, at) for at in range(len(self._pools))}
        options = {at: model.options(job.left) for at, model in models.items() if model.widths}
        if not options:
            raise no_place(self.name, job.task, str(self.cluster))

        alone_s = {at: job.left * models[at].alone_s for at in options}
        widths = {at: models[at].widths for at in options}
        waiting = _WaitingJob(job, widths, options, alone_s, min(alone_s.values()))
        self._waiting[job.task.id] = waiting
        self._by_time.append((waiting.shortest_s, job.task.id))
        if any(len(each.widths) > 1 or each.first_s != alone_s[at] for at, each in options.items()):
            self._elastic_jobs.add(job.task.id)

    def _candidates(self, at: int, view: View) -> "_Candidates":
        """Return the jobs that run in a pool, with their allocations; those that complete now retain their GPUs."""
        pool = self._pools[at]
        jobs = pool.running(view)
        models = {job: self._model_of(pooled.task, at) for job, pooled in jobs.items()}
        options = {job: models[job].options(pooled.left) for job, pooled in jobs.items()}
        order = sorted(jobs, key=lambda job: (options[job].first_s, job))
        completing = [job for job in order if options[job].first_s <= _COMPLETING_S]

        before = pool.allocator.allocations()
        free = len(pool.gpus) - sum(pool.allocator.occupied(len(before[job])) for job in completing)
        work_s = sum([pooled.left * models[job].alone_s * pooled.task.gpus for job, pooled in jobs.items()])
        widths = {job: model.widths for job, model in models.items()}
        return _Candidates(pool, widths, options, completing, free, work_s / len(pool.gpus))

    def _assign(self, candidates: Sequence["_Candidates"]) -> None:
        """Add the waiting jobs: each where it is predicted to complete first, the shortest job first.

        Jobs after those that fill every pool are omitted, since they would not start.
        """
        cut = not self._elastic_jobs
        some = 1 + len(self.cluster) // 4
        for place, (shortest_s, job) in enumerate(self._by_time):
            if cut and place % some == 0 and all(each.is_full(shortest_s) for each in candidates):
                return
            waiting = self._waiting[job]
            best = min(waiting.alone_s, key=lambda at: candidates[at].work_s + waiting.alone_s[at])
            chosen = candidates[best]
            chosen.widths[job] = waiting.widths[best]
            chosen.options[job] = waiting.options[best]
            chosen.work_s += waiting.alone_s[best] * waiting.job.task.gpus / len(chosen.pool.gpus)

    def _plan(self, candidates: "_Candidates", view: View) -> Iterator[Action]:
        pool = candidates.pool
        options = candidates.options
        admitted = admit(options, candidates.order(), candidates.free)

        # Budgets are relative to the energy of the fewest GPUs at the top clock.
        budget_j = self._budget * sum(float(options[job].energy_j[0, -1]) for job in admitted)
        free = candidates.free - sum(options[job].widths[0] for job in admitted)
        allocations = grow(options, admitted, free, budget_j)

        before = pool.allocator.allocations()
        gpus = {job: len(before[job]) for job in candidates.completing}
        for job, chosen in allocations.items():
            gpus[job] = candidates.widths[job][chosen.width]
        yield from self._apply(pool, gpus, allocations, view)

    def _apply(
        self, pool: GpuPool, gpus: Mapping[int, int], allocations: Mapping[int, Allocation], view: View
    ) -> Iterator[Action]:
        changes = reallocate(pool.allocator, gpus)
        after = pool.allocator.allocations()
        for job in changes.stopped:
            yield Pause(job)
        for job, chosen in allocations.items():
            mhz = self.models.clocks_mhz(pool.gpu)[chosen.clock]
            for gpu in after.get(job, ()):
                if self.traits.frequency and view.gpus[gpu].requested_mhz != mhz:
                    yield SetClock(gpu, mhz)
        for job in changes.moved:
            yield Migrate(job, after[job][0], also=after[job][1:])
        for job in changes.started:
            yield Start(job, after[job][0], also=after[job][1:])

    def _model_of(self, task: Task, at: int) -> _JobModel:
        """Return the predictions for an iteration of a task in a pool, given by its index."""
        if (task.id, at) not in self._job_models:
            pool = self._pools[at]
            widths = self._widths(task, pool)
            occupied = tuple([pool.allocator.occupied(width) for width in widths])
            time_s, energy_j = self.models.iteration(task, pool.gpu, widths)
            alone_s = float(self.models.iteration(task, pool.gpu, (task.gpus,))[0][0, -1])
            self._job_models[task.id, at] = _JobModel(widths, occupied, time_s, energy_j, alone_s)
        return self._job_models[task.id, at]

    def _widths(self, task: Task, pool: GpuPool) -> tuple[int, ...]:
        widths = sorted({task.gpus, *task.widths}) if self._elastic else [task.gpus]
        return tuple(width for width in widths if pool.fits(task, width))
