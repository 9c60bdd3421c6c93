"""State of tasks and GPUs during a run, and the views of them that a policy gets.

A task on several GPUs is a gang (`heshare.running.gangs`); its first GPU counts its iterations.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from heshare.devices.device import Device, Reading
from heshare.policies.policy import GpuView, Running
from heshare.running.clock import Clock
from heshare.world.catalogue import memory_mib, parallel_speed
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


class TaskState(Enum):
    """State of a task during a run; the value completes the sentence `task 3 ...` of a message."""

    PENDING = "has not arrived yet"
    WAITING = "waits"
    LOADING = "loads on a GPU"
    RUNNING = "runs already"
    DONE = "has completed"
    FAILED = "has failed"


@dataclass(slots=True, eq=False, repr=False)
class TaskRun:
    """A task during a run.

    Attributes:
        spec: the task.
        remaining: iterations still to do (at the task's own inference batch size and number of GPUs) when it last
            started or stopped.
        workload: what it runs; its inference batch size is the policy's choice.
        state: where it is in its life.
        gpus: its GPUs while it runs or loads, else none; the first counts its iterations.
        mps_pct: its MPS percentage there.
        sharing: its mode of sharing there.
        scale: iterations of the task for one iteration as it runs there.
        slowed: whether devices hold it to the pace of the slowest GPU of its gang.
        started_s: when it last started, s.
        starts: how often it was started; a scheduled end of loading is valid for one start.
        held_mib: its memory on each of its GPUs, MiB.
    """

    spec: Task
    remaining: float
    workload: Workload
    state: TaskState = TaskState.PENDING
    gpus: tuple[GpuState, ...] = ()
    mps_pct: int = 100
    sharing: str = "mps"
    scale: float = 1.0
    slowed: bool = False
    started_s: float = 0.0
    starts: int = 0
    held_mib: float = 0.0

    @classmethod
    def of(cls, spec: Task) -> TaskRun:
        """Return the state of a task that has not arrived yet."""
        return cls(spec, spec.iterations, spec.workload)

    @property
    def id(self) -> int:
        """The task's id."""
        return self.spec.id

    @property
    def running(self) -> bool:
        """True while it runs, and does not wait or load."""
        return self.state is TaskState.RUNNING

    def resize(self, batch_size: int | None, gpus: int) -> None:
        """Take another inference batch size, or with None the task's own, and a number of GPUs."""
        own = self.spec.workload
        self.workload = own if batch_size is None else replace(own, batch_size=batch_size)
        self.scale = self.workload.batch_size / own.batch_size
        if gpus != self.spec.gpus:
            self.scale *= parallel_speed(self.spec, gpus)

    def saved_iterations(self, done: float) -> float:
        """Return how many of `done` iterations since its start count if it stops now: up to its last full epoch."""
        if self.spec.epochs is None:
            return done
        epoch = self.spec.iterations / self.spec.epochs
        before = self.spec.iterations - self.remaining
        # 1e-9: a number of epochs that is whole but for rounding is whole.
        whole_epochs = math.floor((before + done) / epoch + 1e-9)
        return max(whole_epochs * epoch - before, 0.0)

    def occupy(self, gpus: tuple[GpuState, ...]) -> None:
        """Put the task on GPUs and take its memory there."""
        self.gpus = gpus
        self.held_mib = memory_mib(self.workload)
        for gpu in gpus:
            gpu.tasks[self.id] = self
            gpu.free_mib -= self.held_mib
            gpu.forget()

    def vacate(self) -> None:
        """Take the task off its GPUs and give its memory back."""
        for gpu in self.gpus:
            del gpu.tasks[self.id]
            # An empty GPU has all its memory, whatever rounding left.
            gpu.free_mib = gpu.free_mib + self.held_mib if gpu.tasks else gpu.device.gpu.memory_mib
            gpu.forget()
        self.gpus = ()
        self.slowed = False

    def start_on(self, gpu: GpuState, iterations: float | None) -> None:
        """Start the task on a GPU's device, for so many iterations, or with None until it is stopped.

        Raises:
            DeviceError: the device refuses.
        """
        if self.sharing == "mps":
            gpu.device.start(self.id, self.workload, self.mps_pct, iterations)
        else:
            resident = Resident(self.workload, self.mps_pct, self.sharing)
            gpu.device.start_as(self.id, resident, iterations)


@dataclass(slots=True, eq=False, repr=False)
class GpuState:
    """One GPU during a run.

    Attributes:
        tasks: the tasks that run or load on it, by id.
        free_mib: memory that they leave free, MiB.
        running: the view of its tasks.
        view: the view of the GPU; None when something changed since it was made.
        reading: the device's latest reading; None when something changed since.
        version: counts changes; a scheduled check of an older version is void.
        changed: whether it changed at the present event, and is to be read and scheduled again.
        loss_reported: whether the policy has been notified that the GPU is lost.
        drain_reported: whether the policy has been notified that nothing new may start on it.
    """

    index: int
    device: Device
    clock: Clock
    tasks: dict[int, TaskRun] = field(default_factory=dict)
    free_mib: float = field(init=False)
    running: RunningTasks = field(init=False)
    view: ViewOnAccess | None = None
    reading: Reading | None = None
    version: int = 0
    changed: bool = False
    loss_reported: bool = False
    drain_reported: bool = False

    def __post_init__(self) -> None:
        self.free_mib = self.device.gpu.memory_mib
        self.running = RunningTasks(self)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.device.gpu.name})"

    def forget(self) -> None:
        """Note that what was read and seen of it holds no longer."""
        self.view = None
        self.reading = None

    def read(self) -> Reading:
        """Return the device's reading; it is taken again only if something changed."""
        if self.reading is None:
            self.reading = self.device.read()
        return self.reading

    def seen(self) -> ViewOnAccess:
        """Return this GPU as a policy may see it; the same object until something changes."""
        if self.view is None:
            self.view = ViewOnAccess.of(self)
        return self.view


class ViewOnAccess(GpuView):
    """View of a GPU whose clocks and power are read when a policy first asks for them.

    A policy that never asks costs no reading: between an event and the actions that follow it a device may be in a
    state that lasts for no time.
    """

    __slots__ = ("_reading", "_state")
    _state: GpuState
    _reading: Reading | None

    @classmethod
    def of(cls, state: GpuState) -> ViewOnAccess:
        """Return the view of a GPU."""
        view = cls.__new__(cls)
        # The fields of a view are frozen.
        put = object.__setattr__
        put(view, "_state", state)
        put(view, "_reading", state.reading)
        put(view, "index", state.index)
        put(view, "gpu", state.device.gpu)
        put(view, "running", state.running)
        put(view, "free_mib", state.free_mib)
        return view

    def __getattr__(self, name: str) -> Any:
        # Python calls this for an attribute without a value: the three below, until one of them is asked for.
        if name not in ("requested_mhz", "sm_mhz", "power_w"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        reading = self._reading or self._state.read()
        object.__setattr__(self, "requested_mhz", reading.requested_mhz)
        object.__setattr__(self, "sm_mhz", reading.sm_mhz)
        object.__setattr__(self, "power_w", reading.power_w)
        return object.__getattribute__(self, name)


class RunningTasks(Mapping[int, Running]):
    """View of the tasks on a GPU; the present progress of a task is computed from the latest reading on access."""

    __slots__ = ("_gpu",)

    def __init__(self, gpu: GpuState) -> None:
        self._gpu = gpu

    def __len__(self) -> int:
        return len(self._gpu.tasks)

    def __iter__(self) -> Iterator[int]:
        return iter(self._gpu.tasks)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._gpu.tasks

    def __getitem__(self, task_id: int) -> Running:
        task = self._gpu.tasks[task_id]
        gpus = tuple([gpu.index for gpu in task.gpus])
        left = task.remaining / task.scale
        if not task.running:
            return Running(task.spec, task.mps_pct, math.inf, left, task.sharing, gpus)

        reading = task.gpus[0].read()
        progress = reading.residents[task_id]
        done = progress.done + (self._gpu.clock.now_s() - reading.time_s) / progress.time_s
        return Running(task.spec, task.mps_pct, progress.time_s, max(left - done, 0.0), task.sharing, gpus)


class GpuViews(Sequence[GpuView]):
    """Views of all GPUs, each built on access."""

    def __init__(self, gpus: Sequence[GpuState]) -> None:
        self._gpus = gpus

    def __len__(self) -> int:
        return len(self._gpus)

    def __iter__(self) -> Iterator[GpuView]:
        return (gpu.seen() for gpu in self._gpus)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [gpu.seen() for gpu in self._gpus[index]]
        return self._gpus[index].seen()


class WaitingTasks(Sequence[Task]):
    """Tasks that have arrived and do not run, by (arrival, id), as a policy sees them: it cannot change them.

    Adding and removing a task takes O(1), and so do the first and the last place. Tasks that return, since they were
    paused or failed, are sorted in when the tasks are next looked at.
    """

    def __init__(self) -> None:
        self._tasks: OrderedDict[int, Task] = OrderedDict()
        self._sorted = True
        self._places: tuple[Task, ...] | None = None

    def arrive(self, task: Task) -> None:
        """Add a task; for the event loop alone."""
        if self._tasks:
            last = next(reversed(self._tasks.values()))
            self._sorted = self._sorted and _rank(last) < _rank(task)
        self._tasks[task.id] = task
        self._places = None

    def leave(self, task: Task) -> None:
        """Remove a task; for the event loop alone."""
        del self._tasks[task.id]
        self._places = None

    def _in_order(self) -> OrderedDict[int, Task]:
        if not self._sorted:
            self._tasks = OrderedDict(sorted(self._tasks.items(), key=lambda item: _rank(item[1])))
            self._sorted = True
        return self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._in_order().values())

    def __reversed__(self) -> Iterator[Task]:
        return reversed(self._in_order().values())

    def __getitem__(self, index: Any) -> Any:
        if index == 0 and self._tasks:
            return next(iter(self))
        if index == -1 and self._tasks:
            return next(reversed(self))
        if self._places is None:
            self._places = tuple(self)
        return self._places[index]


def _rank(task: Task) -> tuple[float, int]:
    return task.arrival_s, task.id
