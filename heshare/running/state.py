"""State of tasks, gangs and GPUs during a run, and the views of GPUs and waiting tasks that a policy gets.

A task on several GPUs is a gang (`running/gangs.py`); its first GPU counts its iterations.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter
from typing import Any, cast

from heshare.devices.device import Alone, AloneState, BriefReading, Device, Fallible, Reading, ReadsBriefly, SharesGpu
from heshare.devices.emulated_device import EmulatedDevice, StatesAlone
from heshare.policies.policy import GpuView, Pace, Running
from heshare.running.clock import Clock
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import memory_mib, parallel_speed
from heshare.world.task import Task
from heshare.world.workload import Resident


class TaskState(Enum):
    """State of a task during a run; the value completes the sentence `task 3 ...` of a message."""

    PENDING = "has not arrived yet"
    WAITING = "waits"
    LOADING = "loads on a GPU"
    RUNNING = "runs already"
    DONE = "has completed"
    FAILED = "has failed"


_rank = attrgetter("arrival_s", "id")


class TaskRun:
    """A task during a run.

    Attributes:
        remaining: iterations still to do (at the task's own inference batch size and number of GPUs) when it last
            started or stopped.
        indices: those of its GPUs while it runs or loads, else none; the first counts its iterations.
        gpus: these GPUs if they count it, else none.
        workload: what it runs there; its inference batch size is the policy's choice.
        scale: iterations of the task for one iteration as it runs there.
        counted: whether its GPUs count it and its memory, `held_mib`; not while no device knows of it (`Alone`).
        slowed: whether devices hold it to the pace of the slowest GPU of its gang.
        starts: how often it was started; a scheduled end of loading is valid for one start.
        started_s, due_s, alone: where it has its GPUs to itself, as of `Alone`.
    """

    state = TaskState.PENDING
    gpus: tuple[GpuState, ...] = ()
    indices: tuple[int, ...] = ()
    mps_pct, sharing, scale, counted, slowed, starts = 100, "mps", 1.0, False, False, 0
    started_s: float
    due_s: float
    held_mib: float
    alone: AloneState

    def __init__(self, spec: Task) -> None:
        self.id, self.spec, self.remaining, self.workload = spec.id, spec, spec.iterations, spec.workload

    def __getstate__(self) -> dict[str, Any]:
        """Return all but its GPUs, which the loop restores: graphs of tasks and GPUs are too deep to pickle."""
        return {**self.__dict__, "gpus": ()}

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
        epoch, before = self.spec.iterations / self.spec.epochs, self.spec.iterations - self.remaining
        # 1e-9: a number of epochs that is whole but for rounding is whole.
        return max(math.floor((before + done) / epoch + 1e-9) * epoch - before, 0.0)

    def interval(self, now_s: float, done: float, outcome: str) -> tuple[Any, ...]:
        """Return the fields of an `Interval` until now, with all its GPUs; of a gang each did the same part."""
        gpus, size = self.indices, self.workload.batch_size
        return self.id, gpus, self.started_s, now_s, self.mps_pct, size, done / len(gpus), outcome

    def occupy(self, gpus: tuple[GpuState, ...], indices: tuple[int, ...]) -> None:
        """Put the task on GPUs: take its memory there, and add it to their gangs if it is one."""
        self.gpus, self.indices, self.counted, self.held_mib = gpus, indices, True, memory_mib(self.workload)
        for gpu in gpus:
            gpu.tasks, gpu.seen = {**gpu.tasks, self.id: self}, None
            gpu.free_mib -= self.held_mib
            if len(gpus) > 1:
                gpu.gangs[self.id] = self

    def vacate(self) -> None:
        """Take the task off its GPUs and give its memory back."""
        for gpu in self.gpus:
            gpu.tasks = {other: task for other, task in gpu.tasks.items() if other != self.id}
            gpu.gangs.pop(self.id, None)
            # An empty GPU has all its memory, whatever rounding left.
            gpu.free_mib = gpu.free_mib + self.held_mib if gpu.tasks else gpu.total_mib
            gpu.seen = None
        self.gpus = self.indices = ()
        self.counted = self.slowed = False

    def start_on(self, gpu: GpuState, iterations: float | None) -> None:
        """Start the task on a GPU's device, for so many iterations, or with None until it is stopped.

        Raises:
            DeviceError: the device refuses.
        """
        if self.sharing == "mps":
            gpu.device.start(self.id, self.workload, self.mps_pct, iterations)
        else:
            resident = Resident(self.workload, self.mps_pct, self.sharing)
            gpu.require_sharing(f"sharing by {self.sharing}").start_as(self.id, resident, iterations)


@dataclass(slots=True, eq=False, repr=False)
class GpuState:
    """One GPU during a run.

    Attributes:
        tasks: the tasks that run or load on it and that it counts, by task id; replaced when one comes or goes.
        gangs: those of them that are on other GPUs too, by task id.
        seen: the latest view, with its reading once one is taken; set to None when something changes.
        running: the view of its tasks.
        version: counts changes; a scheduled check of an older version is void.
        listed: whether it is on the executor's list of changed GPUs.
        loss_reported: whether the policy has been notified that the GPU is lost.
        drain_reported: whether the policy has been notified that nothing new may start on it.
        shares_gpu: the device, if it runs gangs and shares the GPU in other ways than MPS.
        brief_device: the device, if it reads briefly, and the same whenever it is asked.
        fallible: the device, if a task can fail on it while the run continues.
        alike: that of its emulated device, as long as a policy has not asked for a view or reading; else None.
        alone: tasks that had the GPU to themselves, unknown to the device and the timeline.
        settle: makes both know of them, and of the task that has it to itself now.
    """

    index: int
    device: Device
    clock: Clock
    tasks: dict[int, TaskRun] = field(default_factory=dict)
    gangs: dict[int, TaskRun] = field(default_factory=dict)
    seen: ViewOnAccess | None = None
    running: RunningTasks = field(init=False)
    total_mib: float = field(init=False)
    free_mib: float = field(init=False)
    version: int = 0
    listed: bool = False
    loss_reported: bool = False
    drain_reported: bool = False
    shares_gpu: SharesGpu | None = field(init=False)
    brief_device: ReadsBriefly | None = field(init=False)
    fallible: Fallible | None = field(init=False)
    alike: StatesAlone | None = field(init=False)
    alone: list[Alone] = field(default_factory=list)
    settle: Callable[[GpuState], None] | None = None

    def __post_init__(self) -> None:
        device = self.device
        self.free_mib = self.total_mib = device.gpu.memory_mib
        self.shares_gpu = cast(SharesGpu, device) if hasattr(device, "start_as") else None
        briefly = cast(ReadsBriefly, device) if hasattr(device, "read_brief") else None
        self.brief_device = None if briefly is None or briefly.read_brief() is None else briefly
        self.running = RunningTasks(self)
        self.fallible = cast(Fallible, device) if hasattr(device, "take_failures") else None
        self.alike = device.alike if isinstance(device, EmulatedDevice) else None

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.device.gpu.name})"

    def read(self) -> Reading:
        """Return the device's reading now; it is taken again only if something changed."""
        seen = self.seen or self.view()
        if seen.reading is None:
            self._ask()
            object.__setattr__(seen, "reading", self.device.read())
        return cast(Reading, seen.reading)

    def read_brief(self) -> BriefReading:
        """Return the part of a reading that a timeline keeps, and the next event, of what the device knows."""
        if self.brief_device is not None and (self.seen is None or self.seen.reading is None):
            return cast(BriefReading, self.brief_device.read_brief())
        return BriefReading.of(self.read(), self.device.next_event_s())

    def _ask(self) -> None:
        if self.alike is not None and self.settle is not None:
            self.alike = None
            self.settle(self)

    def require_sharing(self, purpose: str) -> SharesGpu:
        """Return the device, for what only some devices can do.

        Raises:
            DeviceError: it shares by MPS alone and runs each task on itself alone.
        """
        if self.shares_gpu is None:
            raise DeviceError(
                f"GPU {self.index} ({self.device.gpu.name}, {self.device.provenance}): {purpose} is not possible; it "
                "shares by MPS alone and runs each task on itself alone. Use a policy and tasks that need no more, or "
                "emulated GPUs."
            )
        return self.shares_gpu

    def view(self) -> ViewOnAccess:
        """Return this GPU as a policy may see it; built once after each change."""
        if self.seen is None:
            self._ask()
            self.seen = ViewOnAccess.of(self)
            if self.brief_device is None:
                self.read()
        return self.seen

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        return None, {name: None if name == "seen" else getattr(self, name) for name in self.__slots__}


class ViewOnAccess(GpuView):
    """View of a GPU, which asks the device when a policy needs more than the tasks that run there."""

    __slots__ = ("_state", "reading")
    _state: GpuState
    reading: Reading | None

    @classmethod
    def of(cls, state: GpuState) -> ViewOnAccess:
        """Return the view of a GPU."""
        view, known = cls.__new__(cls), (state, None, state.index, state.device.gpu, state.running)
        for name, value in zip(("_state", "reading", "index", "gpu", "running"), known, strict=True):
            object.__setattr__(view, name, value)
        return view

    def __getattr__(self, name: str) -> Any:
        found = self._state.read_brief() if self.reading is None else self.reading
        known = found.requested_mhz, found.sm_mhz, found.power_w, self._state.free_mib
        for each, value in zip(("requested_mhz", "sm_mhz", "power_w", "free_mib"), known, strict=True):
            object.__setattr__(self, each, value)
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
        pace, now_s = self.pace(task_id), self._gpu.clock.now_s()
        return Running(task.spec, task.mps_pct, pace.time_s, pace.remaining(now_s), task.sharing, task.indices)

    def pace(self, task_id: int) -> Pace:
        """Return the pace of a task, which holds until something changes on the GPU."""
        task = self._gpu.tasks[task_id]
        left = task.remaining / task.scale
        if not task.running:
            return Pace(left, 0.0, 0.0, math.inf)
        reading = task.gpus[0].read()
        progress = reading.residents[task_id]
        return Pace(left, progress.done, reading.time_s, progress.time_s)


class GpuViews(Sequence[GpuView]):
    """Views of all GPUs, each built on access."""

    def __init__(self, gpus: Sequence[GpuState]) -> None:
        self._gpus = gpus

    def __len__(self) -> int:
        return len(self._gpus)

    def __iter__(self) -> Iterator[GpuView]:
        return (gpu.seen or gpu.view() for gpu in self._gpus)

    def __getitem__(self, index: Any) -> Any:
        gpus: Any = self._gpus[index]
        return [gpu.view() for gpu in gpus] if isinstance(index, slice) else gpus.view()


class WaitingTasks(list[Task]):
    """Tasks that have arrived and do not run, by (arrival, id); `add` and `remove` take O(log n) and a memory move."""

    def add(self, task: Task) -> None:
        """Add a task to the waiting ones."""
        if self and self[-1].arrival_s >= task.arrival_s and _rank(self[-1]) > _rank(task):
            insort(self, task, key=_rank)
        else:
            self.append(task)

    def remove(self, task: Task) -> None:
        """Remove a task from the waiting ones."""
        del self[0 if self[0] is task else bisect_left(self, _rank(task), key=_rank)]
