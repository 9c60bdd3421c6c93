"""Bookings of GPUs by jobs while a policy decides: the view of the cluster plus the decisions made so far."""

from collections.abc import Sequence

from heshare.policies.policy import GpuView, View
from heshare.systems.shared.co_location import CoLocationHistory
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


class GpuBookings:
    """The jobs on each GPU; a decision books jobs here before its actions are carried out.

    Attributes:
        now_s: the time, s.
        gpus: the type of each GPU.
        on: the task ids on each GPU.
        free_mib: device memory that is free on each GPU, MiB.
        tasks: every task that has GPUs, by id.
        left: iterations that each of them has still to do.
        gpus_of: the GPUs of each of them.
        time_s: measured seconds per iteration of the tasks that ran already; `inf` while they load.
    """

    def __init__(self, view: View) -> None:
        self.now_s = view.now_s
        self.gpus: list[Gpu] = []
        self.on: list[list[int]] = []
        self.free_mib: list[float] = []
        self.tasks: dict[int, Task] = {}
        self.left: dict[int, float] = {}
        self.gpus_of: dict[int, tuple[int, ...]] = {}
        self.time_s: dict[int, float] = {}
        for gpu in view.gpus:
            self.gpus.append(gpu.gpu)
            self.on.append(list(gpu.running))
            self.free_mib.append(gpu.free_mib)
            for task in gpu.running:
                if task not in self.tasks:
                    self._enter(task, gpu)

    def _enter(self, task: int, view: GpuView) -> None:
        running = view.running[task]
        self.tasks[task], self.left[task] = running.task, running.remaining
        self.gpus_of[task], self.time_s[task] = running.gpus or (view.index,), running.time_s

    def book(self, task: Task, left: float, gpus: Sequence[int]) -> None:
        """Book a task with `left` iterations onto GPUs."""
        self.tasks[task.id], self.left[task.id], self.gpus_of[task.id] = task, left, tuple(gpus)
        for gpu in gpus:
            self.on[gpu].append(task.id)
            self.free_mib[gpu] -= memory_mib(task.workload)

    def remove(self, task: int) -> None:
        """Remove a task from its GPUs."""
        for gpu in self.gpus_of.pop(task):
            self.on[gpu].remove(task)
            self.free_mib[gpu] += memory_mib(self.tasks[task].workload)
        del self.tasks[task], self.left[task]

    def workloads(self, gpu: int) -> tuple[Workload, ...]:
        """Return the workloads on a GPU."""
        return tuple([self.tasks[task].workload for task in self.on[gpu]])

    def predicted_s(self, history: CoLocationHistory, task: int) -> float:
        """Return the predicted seconds per iteration of a task; a gang runs at the speed of its slowest GPU."""
        return max(
            history.times_s(self.gpus[gpu], self.workloads(gpu))[self.on[gpu].index(task)] for gpu in self.gpus_of[task]
        )

    def done_s(self, history: CoLocationHistory, task: int) -> float:
        """Return when a task is predicted to complete if the bookings do not change, s."""
        return self.now_s + self.left[task] * self.predicted_s(history, task)
