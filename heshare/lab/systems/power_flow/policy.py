"""PowerFlow: the least average JCT under an energy budget, by numbers of GPUs and clocks of elastic trainings.

Gu, Xie, Huang, Jin and Liu (Peking University), Energy-Efficient GPU Clusters Scheduling for Deep Learning, 2023,
arXiv 2304.06381. No code was published, and the full text was not available.

From its abstract: elastic trainings under an energy budget, models of throughput and energy that are fitted for each
job, clocks and numbers of GPUs as the choices, placement by buddy allocation. From Algorithm 1 as others ported it:
each job begins with a base allocation, and the moves of the best gain in JCT for their energy are made while GPUs and
the budget last (`heshare.lab.systems.power_flow.allocation`). GPUs are never shared.

Assumed: the forms of the models (`heshare.lab.systems.power_flow.step_models`), that jobs begin with their fewest GPUs
at the clock of least energy and are admitted shortest remaining time first, and every default value of `PowerFlow`.

A task with one number of GPUs has no GPUs to gain. For the inference tasks of Table IV PowerFlow is therefore shortest
remaining time first with a marginal choice of clocks.
"""

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
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib, parallel_speed
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task

# A job with less time left keeps its GPUs: it completes at this moment, and its completion is the next event.
_COMPLETING_S = 1e-6


class PooledTask(NamedTuple):
    task: Task
    left: float


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
                tasks[task] = PooledTask(running.task, running.remaining * parallel_speed(running.task, len(gpus)))
        return tasks


def make_pools(cluster: Cluster, gpus_per_node: int) -> list[GpuPool]:
    """Return a pool for each type of GPU of a cluster, all free; consecutive GPUs of a type make its nodes."""
    pools = []
    for kind in cluster.kinds:
        own = [node for node in nodes(cluster, gpus_per_node) if cluster.gpus[node[0]] == kind]
        pools.append(GpuPool(kind, tuple(gpu for node in own for gpu in node), BuddyAllocator(own)))
    return pools


@register("power-flow", title="PowerFlow")
@register("srtf", title="SRTF", preset={"clocks": 1, "elastic": False})
@register("srtf:fixed-clock", title="SRTF at 0.8 clock", preset={"clocks": 1, "elastic": False, "ceiling": 0.8})
class PowerFlow(Policy):
    """Marginal moves over GPUs and clocks under an energy budget, placed in buddy blocks.

    On a cluster of several types of GPU (our extension) each type is planned by itself, and a waiting task belongs to
    the type on which it is predicted to complete first, by the work that is there already.

    Args:
        budget: the energy that admitted jobs may take, over that on their fewest GPUs at the top clock; assumed.
        clocks: clocks to choose among, spread evenly; assumed. One is the highest alone.
        floor: the lowest clock, over the card's top one; assumed. Below it, hardly any work takes less energy.
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
        require("budget", budget, budget > 0, "a share above 0")
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
        self._pools, self._cluster = make_pools(cluster, self._per_node), str(cluster)

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        running = [pool.running(view) for pool in self._pools]
        waiting = [PooledTask(task, view.remaining[task.id]) for task in view.waiting]
        for pool, run_here, wait_here in zip(self._pools, running, self._assign(waiting, running), strict=True):
            yield from self._plan(pool, run_here, wait_here, view)

    def _assign(
        self, waiting: Sequence[PooledTask], running: Sequence[Mapping[int, PooledTask]]
    ) -> list[dict[int, PooledTask]]:
        """Return the waiting jobs of each pool: each where it is predicted to complete first, the shortest job first.

        Raises:
            InputError: a job that fits in no pool.
        """
        assigned: list[dict[int, PooledTask]] = [{} for _ in self._pools]
        work_s = [
            sum(self._alone_s(job, pool) * job.task.gpus for job in jobs.values()) / len(pool.gpus)
            for pool, jobs in zip(self._pools, running, strict=True)
        ]
        times_s = [
            ({at: self._alone_s(job, pool) for at, pool in enumerate(self._pools) if self._widths(job.task, pool)}, job)
            for job in waiting
        ]
        misfit = next((job.task for by_pool_s, job in times_s if not by_pool_s), None)
        if misfit is not None:
            raise no_place(self.name, misfit, self._cluster)
        for by_pool_s, job in sorted(times_s, key=lambda pair: (min(pair[0].values()), pair[1].task.id)):
            best = min(by_pool_s, key=lambda at: work_s[at] + by_pool_s[at])
            assigned[best][job.task.id] = job
            work_s[best] += by_pool_s[best] * job.task.gpus / len(self._pools[best].gpus)
        return assigned

    def _plan(
        self, pool: GpuPool, running: Mapping[int, PooledTask], waiting: Mapping[int, PooledTask], view: View
    ) -> Iterator[Action]:
        jobs = {**running, **waiting}
        options = {job: self._options(task, pool) for job, task in jobs.items()}
        order = sorted(jobs, key=lambda job: (float(options[job].time_s[0, -1]), job))
        completing = [job for job in order if job in running and options[job].time_s[0, -1] <= _COMPLETING_S]
        before = pool.allocator.allocations()
        free = len(pool.gpus) - sum(pool.allocator.occupied(len(before[job])) for job in completing)
        admitted = admit(options, [job for job in order if job not in completing], free)
        # Budgets are relative to the energy of the fewest GPUs at the top clock.
        budget_j = self._budget * sum(float(options[job].energy_j[0, -1]) for job in admitted)
        free -= sum(options[job].widths[0] for job in admitted)
        allocations = grow(options, admitted, free, budget_j)
        gpus = {job: self._widths(jobs[job].task, pool)[chosen.width] for job, chosen in allocations.items()}
        yield from self._apply(pool, {job: len(before[job]) for job in completing} | gpus, allocations, view)

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

    def _options(self, job: PooledTask, pool: GpuPool) -> AllocationOptions:
        widths = self._widths(job.task, pool)
        occupied = [pool.allocator.occupied(width) for width in widths]
        return self.models.options(job.task, job.left, pool.gpu, widths, occupied)

    def _widths(self, task: Task, pool: GpuPool) -> tuple[int, ...]:
        widths = sorted({task.gpus, *task.widths}) if self._elastic else [task.gpus]
        return tuple(width for width in widths if pool.fits(task, width))

    def _alone_s(self, job: PooledTask, pool: GpuPool) -> float:
        return job.left * self.models.alone_s(job.task, pool.gpu)
