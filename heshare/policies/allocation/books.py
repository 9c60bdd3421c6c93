"""Who is on which GPU at this moment, with what was decided and is not carried out yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from heshare.policies.allocation.history import History
from heshare.policies.policy import GpuView, View
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


class Books:
    """The cluster as a policy that lets jobs share GPUs sees it while it decides.

    Attributes:
        now_s: the time, s.
        gpus: the type of each GPU.
        on: who is on each GPU, by task id.
        free_mib: device memory that is free on each GPU, MiB.
        tasks: every task that runs, by id.
        left: iterations of its own that each of them has still to do.
        where: the GPUs of each of them.
        pace_s: measured seconds per iteration of those that run already; `inf` while they load.
    """

    def __init__(self, view: View) -> None:
        self.now_s = view.now_s
        self.gpus: list[Gpu] = []
        self.on: list[list[int]] = []
        self.free_mib: list[float] = []
        self.tasks: dict[int, Task] = {}
        self.left: dict[int, float] = {}
        self.where: dict[int, tuple[int, ...]] = {}
        self.pace_s: dict[int, float] = {}
        for each in view.gpus:
            there = list(each.running)
            self.gpus.append(each.gpu)
            self.on.append(there)
            self.free_mib.append(each.free_mib)
            for task in there:
                if task not in self.tasks:
                    self._enter(task, each)

    def _enter(self, task: int, view: GpuView) -> None:
        one = view.running[task]
        self.tasks[task], self.left[task] = one.task, one.remaining
        self.where[task], self.pace_s[task] = one.gpus or (view.index,), one.time_s

    def put(self, task: Task, left: float, gpus: Sequence[int]) -> None:
        """Book a task onto GPUs."""
        self.tasks[task.id], self.left[task.id], self.where[task.id] = task, left, tuple(gpus)
        for gpu in gpus:
            self.on[gpu].append(task.id)
            self.free_mib[gpu] -= memory_mib(task.workload)

    def take(self, task: int) -> None:
        """Take a task off its GPUs."""
        for gpu in self.where.pop(task):
            self.on[gpu].remove(task)
            self.free_mib[gpu] += memory_mib(self.tasks[task].workload)
        del self.tasks[task], self.left[task]

    def workloads(self, gpu: int) -> tuple[Workload, ...]:
        """What runs on a GPU."""
        return tuple([self.tasks[task].workload for task in self.on[gpu]])

    def time_s(self, history: History, task: int) -> float:
        """Predicted seconds per iteration of a task: a gang goes at the pace of its slowest GPU."""
        return max(
            history.times_s(self.gpus[gpu], self.workloads(gpu))[self.on[gpu].index(task)] for gpu in self.where[task]
        )

    def done_s(self, history: History, task: int) -> float:
        """When a task is predicted to complete if nobody comes or goes, s."""
        return self.now_s + self.left[task] * self.time_s(history, task)


def local_sets(eligible: Sequence[Sequence[int]], signature: Sequence[object], size: int) -> list[tuple[int, ...]]:
    """Sets of GPUs within one node, of those that are not interchangeable one each.

    Args:
        eligible: GPUs of each node that may be taken, in order.
        signature: of each GPU; GPUs of a node with equal ones are interchangeable.
        size: how many GPUs a set has.

    Returns:
        Every way to take so many from the node's groups of equal GPUs, the first ones of each group.
    """
    found: list[tuple[int, ...]] = []
    for node in eligible:
        if len(node) < size:
            continue
        groups: dict[object, list[int]] = {}
        for gpu in node:
            groups.setdefault(signature[gpu], []).append(gpu)
        if size == 1:
            found += [(group[0],) for group in groups.values()]
            continue
        choices = [range(min(size, len(group)) + 1) for group in groups.values()]
        for counts in product(*choices):
            if sum(counts) == size:
                chosen = [gpu for group, count in zip(groups.values(), counts, strict=True) for gpu in group[:count]]
                found.append(tuple(sorted(chosen)))
    return found
