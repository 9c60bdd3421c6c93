"""Pools of GPUs of one type: the jobs that run in each, and the assignment of waiting jobs to pools.

PowerFlow knows one type of GPU. On a cluster of several types (our extension) each type is a pool that is planned by
itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from heshare.policies.policy import View
from heshare.systems.power_flow.buddy import BuddyAllocator
from heshare.systems.shared.cluster_nodes import nodes
from heshare.world.catalogue import memory_mib, parallel_speed
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


@dataclass(frozen=True, slots=True)
class GpuPool:
    """The GPUs of one type.

    Attributes:
        gpu: the type.
        gpus: their indices.
        allocator: the GPUs that each job has.
    """

    gpu: Gpu
    gpus: tuple[int, ...]
    allocator: BuddyAllocator

    def fits(self, task: Task, gpus: int) -> bool:
        """Return whether a task can run here on `gpus` GPUs."""
        return memory_mib(task.workload) <= self.gpu.memory_mib and self.allocator.occupied(gpus) <= len(self.gpus)


@dataclass(frozen=True, slots=True)
class PooledTask:
    """A task that runs or waits.

    Attributes:
        task: the task.
        left: iterations that it has still to do.
    """

    task: Task
    left: float


def make_pools(cluster: Cluster, gpus_per_node: int) -> list[GpuPool]:
    """Return a pool for each type of GPU of a cluster, all free; consecutive GPUs of a type make its nodes."""
    pools = []
    for kind in cluster.kinds:
        own = [node for node in nodes(cluster, gpus_per_node) if cluster.gpus[node[0]] == kind]
        pools.append(GpuPool(kind, tuple(gpu for node in own for gpu in node), BuddyAllocator(own)))
    return pools


def running_tasks(pool: GpuPool, view: View) -> dict[int, PooledTask]:
    """Return the tasks that run in a pool, by id; the blocks of those that have completed are released."""
    tasks = {}
    for task, gpus in pool.allocator.allocations().items():
        on_gpu = view.gpus[gpus[0]].running
        if task not in on_gpu:
            pool.allocator.release(task)
            continue
        running = on_gpu[task]
        tasks[task] = PooledTask(running.task, running.remaining * parallel_speed(running.task, len(gpus)))
    return tasks


def assign_to_pools(
    waiting: Sequence[PooledTask],
    running: Sequence[Sequence[PooledTask]],
    pools: Sequence[GpuPool],
    alone_s: Callable[[PooledTask, GpuPool], float],
    least: Callable[[Task], int],
) -> list[dict[int, PooledTask]]:
    """Return the waiting jobs of each pool: each job where it is predicted to complete first, the shortest job first.

    Args:
        waiting: jobs without GPUs; one that fits in no pool is assigned to none.
        running: the jobs that run in each pool.
        pools: the pools.
        alone_s: the time of a job in a pool on as many GPUs as it requests, s.
        least: the fewest GPUs that a task may have.
    """
    fitting = [(job, [pool for pool in pools if pool.fits(job.task, least(job.task))]) for job in waiting]
    times_s = [(job, {pool.gpu: alone_s(job, pool) for pool in choices}) for job, choices in fitting if choices]
    if len(pools) == 1:
        return [{job.task.id: job for job, _ in times_s}]
    work_s = {
        pool.gpu: sum(alone_s(job, pool) * job.task.gpus for job in jobs) / len(pool.gpus)
        for pool, jobs in zip(pools, running, strict=True)
    }
    assigned: dict[Gpu, dict[int, PooledTask]] = {pool.gpu: {} for pool in pools}
    size = {pool.gpu: len(pool.gpus) for pool in pools}
    for job, by_gpu_s in sorted(times_s, key=lambda pair: (min(pair[1].values()), pair[0].task.id)):
        best = _earliest(by_gpu_s, work_s)
        assigned[best][job.task.id] = job
        work_s[best] += by_gpu_s[best] * job.task.gpus / size[best]
    return list(assigned.values())


def _earliest(times_s: Mapping[Gpu, float], work_s: Mapping[Gpu, float]) -> Gpu:
    return min(times_s, key=lambda gpu: work_s[gpu] + times_s[gpu])
