"""GPUs of one type as a pool of buddy blocks, who runs there, and who waits for which pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from heshare.policies.allocation.buddy import Buddy
from heshare.policies.policy import View
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.training import speed


@dataclass(frozen=True, slots=True)
class Pool:
    """The GPUs of one type.

    Attributes:
        gpu: the type.
        gpus: their indices.
        buddy: who has which of them.
    """

    gpu: Gpu
    gpus: tuple[int, ...]
    buddy: Buddy

    def fits(self, task: Task, gpus: int) -> bool:
        """Whether a task may run here on so many GPUs."""
        return memory_mib(task.workload) <= self.gpu.memory_mib and self.buddy.held(gpus) <= len(self.gpus)


@dataclass(frozen=True, slots=True)
class Job:
    """A task that runs or waits.

    Attributes:
        task: the task.
        left: iterations of its own still to do.
    """

    task: Task
    left: float


def pools(cluster: Cluster, gpus_per_node: int) -> list[Pool]:
    """A pool for each type of GPU of a cluster, all free; consecutive GPUs of a type make its nodes."""
    found = []
    for kind in cluster.kinds:
        own = [node for node in nodes(cluster, gpus_per_node) if cluster.gpus[node[0]] == kind]
        found.append(Pool(kind, tuple(gpu for node in own for gpu in node), Buddy(own)))
    return found


def nodes(cluster: Cluster, gpus_per_node: int) -> list[tuple[int, ...]]:
    """The nodes of a cluster: consecutive GPUs of one type; the last one of a type may be smaller."""
    found = []
    for kind in cluster.kinds:
        own = tuple(index for index, gpu in enumerate(cluster.gpus) if gpu == kind)
        found += [own[at : at + gpus_per_node] for at in range(0, len(own), gpus_per_node)]
    return found


def running(pool: Pool, view: View) -> dict[int, Job]:
    """Who runs in a pool, by task; the blocks of those that have completed are given back."""
    found = {}
    for task, gpus in pool.buddy.taken().items():
        here = view.gpus[gpus[0]].running
        if task not in here:
            pool.buddy.release(task)
            continue
        each = here[task]
        found[task] = Job(each.task, each.remaining * speed(each.task, len(gpus)))
    return found


def deal(
    waiting: Sequence[Job],
    load: Sequence[Sequence[Job]],
    everywhere: Sequence[Pool],
    alone_s: Callable[[Job, Pool], float],
    least: Callable[[Task], int],
) -> list[dict[int, Job]]:
    """The waiting jobs of each pool: where each is believed to complete first, the shortest dealt first.

    Args:
        waiting: jobs that run nowhere; one that fits nowhere is dealt nowhere.
        load: who runs in each pool.
        everywhere: the pools.
        alone_s: how long a job takes in a pool on the GPUs that it asks for, s.
        least: the fewest GPUs that a task may have.
    """
    fitting = [(job, [pool for pool in everywhere if pool.fits(job.task, least(job.task))]) for job in waiting]
    priced = [(job, {pool.gpu: alone_s(job, pool) for pool in where}) for job, where in fitting if where]
    if len(everywhere) == 1:
        return [{job.task.id: job for job, _ in priced}]
    work_s = {
        pool.gpu: sum(alone_s(job, pool) * job.task.gpus for job in there) / len(pool.gpus)
        for pool, there in zip(everywhere, load, strict=True)
    }
    dealt: dict[Gpu, dict[int, Job]] = {pool.gpu: {} for pool in everywhere}
    size = {pool.gpu: len(pool.gpus) for pool in everywhere}
    for job, times_s in sorted(priced, key=lambda pair: (min(pair[1].values()), pair[0].task.id)):
        best = _earliest(times_s, work_s)
        dealt[best][job.task.id] = job
        work_s[best] += times_s[best] * job.task.gpus / size[best]
    return list(dealt.values())


def _earliest(times_s: Mapping[Gpu, float], work_s: Mapping[Gpu, float]) -> Gpu:
    return min(times_s, key=lambda gpu: work_s[gpu] + times_s[gpu])
