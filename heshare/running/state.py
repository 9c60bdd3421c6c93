"""State of tasks, gangs and GPUs during a run, and the views of GPUs and waiting tasks that a policy gets.

A task on several GPUs is a gang. Its iterations run in lockstep, at the pace of the slowest GPU; its first GPU counts
them. While all GPUs of a gang are equal and run nothing else, the gang is mirrored: only the device of the first GPU
runs it, and the others are accounted for when the gang ends or is split.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, cast, overload

from heshare.devices.device import BriefReading, Device, Fallible, MirrorsDevice, Reading, SharesGpu
from heshare.policies.policy import GpuView, Pace, Running
from heshare.running.clock import Clock
from heshare.shared.errors import DeviceError
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
        spec: the task as it was given.
        id: the task's id.
        state: its state.
        remaining: iterations still to do (at the task's own inference batch size and number of GPUs) when it last
            started or stopped.
        gpus: its GPUs while it runs or loads, else none; the first counts its iterations.
        indices: their indices in the cluster.
        mps_pct: its MPS percentage there.
        sharing: how it shares them.
        workload: what it runs there; its inference batch size is the policy's choice.
        scale: iterations of the task for one iteration as it runs there.
        memory_mib: device memory that it needs on each GPU, MiB.
        slowed: whether devices hold it to the pace of the slowest GPU of its gang.
        mirrored: whether only the device of its first GPU runs it, since the others of its gang do the same.
        power_w: power of each GPU of a mirrored gang, W.
        started_s: when it was put on its GPUs, s.
        ran_s: when it began to run there, after loading, s.
        starts: how often it was started; a scheduled end of loading is valid for one start.
    """

    spec: Task
    id: int = field(init=False)
    state: TaskState = TaskState.PENDING
    remaining: float = field(init=False)
    gpus: tuple[GpuState, ...] = ()
    indices: tuple[int, ...] = ()
    mps_pct: int = 100
    sharing: str = "mps"
    workload: Workload = field(init=False)
    scale: float = 1.0
    memory_mib: float = field(init=False)
    slowed: bool = False
    mirrored: bool = False
    power_w: float = 0.0
    started_s: float = 0.0
    ran_s: float = 0.0
    starts: int = 0

    def __post_init__(self) -> None:
        self.id, self.remaining, self.workload = self.spec.id, self.spec.iterations, self.spec.workload
        self.memory_mib = memory_mib(self.workload)

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Return all but its GPUs, which the executor restores: graphs of tasks and GPUs are too deep to pickle."""
        return None, {**{name: getattr(self, name) for name in self.__slots__}, "gpus": ()}

    @property
    def running(self) -> bool:
        """True while it runs, and does not wait or load."""
        return self.state is TaskState.RUNNING

    def resize(self, batch_size: int | None, gpus: int) -> None:
        """Take another inference batch size, or with None the task's own, and a number of GPUs."""
        workload = self.spec.workload if batch_size is None else replace(self.spec.workload, batch_size=batch_size)
        if workload is not self.workload and workload != self.workload:
            self.workload = workload
            self.memory_mib = memory_mib(workload)
        self.scale = self.workload.batch_size / self.spec.workload.batch_size
        if gpus != self.spec.gpus:
            self.scale *= parallel_speed(self.spec, gpus)

    def saved_iterations(self, done: float) -> float:
        """Return how many of `done` iterations since its start count if it stops now: up to its last full epoch."""
        if self.spec.epochs is None:
            return done
        epoch, before = self.spec.iterations / self.spec.epochs, self.spec.iterations - self.remaining
        # 1e-9: a number of epochs that is whole but for rounding is whole.
        return max(math.floor((before + done) / epoch + 1e-9) * epoch - before, 0.0)

    def occupy(self, gpus: tuple[GpuState, ...]) -> None:
        """Put the task on GPUs and take its memory there."""
        self.gpus, self.indices = gpus, tuple([gpu.index for gpu in gpus])
        task_id, needed_mib, gang = self.id, self.memory_mib, len(gpus) > 1
        for gpu in gpus:
            gpu.tasks[task_id] = self
            if gang:
                gpu.gangs[task_id] = self
            gpu.free_mib -= needed_mib
            gpu.reading = None

    def vacate(self) -> None:
        """Take the task off its GPUs and give its memory back."""
        task_id, needed_mib, gang = self.id, self.memory_mib, len(self.gpus) > 1
        for gpu in self.gpus:
            del gpu.tasks[task_id]
            if gang:
                del gpu.gangs[task_id]
            # An empty GPU has all its memory, whatever rounding left.
            gpu.free_mib = gpu.free_mib + needed_mib if gpu.tasks else gpu.total_mib
            gpu.reading = None
        self.gpus = self.indices = ()
        self.slowed = self.mirrored = False

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
        gpu.reading = None

    def split(self, now_s: float) -> None:
        """Make a mirrored gang run on the devices of all its GPUs, since they may differ from now on."""
        self.mirrored = False
        for gpu in self.gpus[1:]:
            gpu.device.advance(self.ran_s)
            self.start_on(gpu, None)
            gpu.device.advance(now_s)

    def end_mirroring(self, now_s: float) -> None:
        """Account for the mirroring GPUs of a gang that has completed on its first GPU."""
        self.gpus[1].reading = None
        devices: list[Any] = [gpu.device for gpu in self.gpus[1:]]
        devices[0].add_mirrored(devices, self.ran_s, now_s, self.power_w)
        self.mirrored = False


class TaskSource(Protocol):
    """Queue of the tasks still to arrive, read as they arrive; `live` are those that were read and are not over."""

    live: dict[int, TaskRun]

    def __bool__(self) -> bool: ...
    def popleft(self) -> list[TaskRun]:
        """Return the tasks that arrive next, at one moment."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class GpuState:
    """One GPU during a run.

    Attributes:
        index: the GPU's index in the cluster.
        device: the device.
        clock: the time of the run.
        tasks: the tasks that run or load on it, by task id.
        gangs: those of them that are on other GPUs too, by task id.
        reading: the latest reading; set to None when something changes.
        read_s: when that reading was taken, s.
        total_mib: device memory, MiB.
        free_mib: that of it which is free, MiB.
        version: counts changes; a scheduled check of an older version is void.
        listed: whether it is on the executor's list of changed GPUs.
        loss_reported: whether the policy has been notified that the GPU is lost.
        drain_reported: whether the policy has been notified that nothing new may start on it.
        shares_gpu: the device, if it runs gangs and shares the GPU in other ways than MPS.
        mirrors_device: the device, if it can mirror another one.
        fallible: the device, if a task can fail on it while the run continues.
        built_view: the view of `reading`, or None when it has not been built.
    """

    index: int
    device: Device
    clock: Clock
    tasks: dict[int, TaskRun] = field(default_factory=dict)
    gangs: dict[int, TaskRun] = field(default_factory=dict)
    reading: Reading | None = None
    read_s: float = 0.0
    total_mib: float = field(init=False)
    free_mib: float = field(init=False)
    version: int = 0
    listed: bool = False
    loss_reported: bool = False
    drain_reported: bool = False
    shares_gpu: SharesGpu | None = field(init=False)
    mirrors_device: MirrorsDevice | None = field(init=False)
    fallible: Fallible | None = field(init=False)
    built_view: GpuView | None = None

    def __post_init__(self) -> None:
        device = self.device
        self.free_mib = self.total_mib = device.gpu.memory_mib
        shares, mirrors, fails = _abilities(device)
        self.shares_gpu = cast(SharesGpu, device) if shares else None
        self.mirrors_device = cast(MirrorsDevice, device) if mirrors else None
        self.fallible = cast(Fallible, device) if fails else None

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.device.gpu.name})"

    def read(self) -> Reading:
        """Return the device's reading now; it is taken again only if something changed."""
        if self.reading is None:
            if self.mirroring():
                next(iter(self.gangs.values())).split(self.clock.now_s())
            self.reading, self.built_view = self.device.read(), None
            self.read_s = self.reading.time_s
        return self.reading

    def read_brief(self) -> BriefReading:
        """Return the part of a reading that a timeline keeps, and the next event, of a GPU that mirrors no other."""
        if self.mirrors_device is not None and self.reading is None:
            brief = self.mirrors_device.read_brief()
            if brief is not None:
                return brief
        return BriefReading.of(self.read(), self.device.next_event_s())

    def mirroring(self) -> bool:
        """Return whether it mirrors the first GPU of a gang, so that its own device runs nothing."""
        # A GPU of a mirrored gang has no other task.
        for task in self.gangs.values():
            return task.mirrored and task.gpus[0] is not self
        return False

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

    def view(self) -> GpuView:
        """Return this GPU as a policy may see it; built once for each reading."""
        reading = self.read()
        if self.built_view is None:
            self.built_view = GpuView(
                self.index,
                self.device.gpu,
                RunningTasks(self),
                reading.requested_mhz,
                reading.sm_mhz,
                reading.power_w,
                self.free_mib,
            )
        return self.built_view


_ABILITIES: dict[type, tuple[bool, bool, bool]] = {}


def _abilities(device: Device) -> tuple[bool, bool, bool]:
    """Return whether a kind of device can share its GPU, mirror others, and fail; found out once for each kind."""
    found = _ABILITIES.get(type(device))
    if found is None:
        found = isinstance(device, SharesGpu), isinstance(device, MirrorsDevice), isinstance(device, Fallible)
        _ABILITIES[type(device)] = found
    return found


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
        first = task.gpus[0]
        progress = first.read().residents[task_id]
        return Pace(left, progress.done, first.read_s, progress.time_s)


class GpuViews(Sequence[GpuView]):
    """Views of all GPUs, each built on access."""

    def __init__(self, gpus: Sequence[GpuState]) -> None:
        self._gpus = gpus

    def __len__(self) -> int:
        return len(self._gpus)

    def __iter__(self) -> Iterator[GpuView]:
        # Without a call for each of many GPUs whose view is built.
        return (gpu.view() if gpu.reading is None else gpu.built_view or gpu.view() for gpu in self._gpus)

    @overload
    def __getitem__(self, index: int) -> GpuView: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[GpuView]: ...
    def __getitem__(self, index: int | slice) -> GpuView | Sequence[GpuView]:
        if isinstance(index, slice):
            return [gpu.view() for gpu in self._gpus[index]]
        return self._gpus[index].view()


class WaitingTasks(Sequence[Task]):
    """Tasks that have arrived and do not run, by (arrival, id); `add` and `remove` take O(log n) and a memory move."""

    def __init__(self) -> None:
        self._keys: list[tuple[float, int]] = []
        self._tasks: list[Task] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return self._tasks[index]

    def add(self, task: Task) -> None:
        """Add a task to the waiting ones."""
        key = (task.arrival_s, task.id)
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._tasks.insert(place, task)

    def remove(self, task: Task) -> None:
        """Remove a task from the waiting ones."""
        place = bisect_left(self._keys, (task.arrival_s, task.id))
        del self._keys[place], self._tasks[place]


def can_mirror(gpus: Sequence[GpuState], loading: int, /) -> bool:
    """Return whether all GPUs of a gang are idle and equal, so that only the device of the first has to run it.

    Args:
        gpus: the GPUs.
        loading: how many tasks are on each of them and do not run yet.
    """
    first = gpus[0].mirrors_device
    devices = [gpu.mirrors_device for gpu in gpus if len(gpu.tasks) == loading]
    return first is not None and len(devices) == len(gpus) and first.can_mirror(devices)


def split_gangs(gpu: GpuState, now_s: float) -> None:
    """Split the mirrored gangs of a GPU that is about to change."""
    for gang in gpu.gangs.values():
        if gang.mirrored:
            gang.split(now_s)


def keep_lockstep(changed: list[GpuState], advance: Callable[[GpuState], None]) -> None:
    """Set the pace of every gang that a change may have slowed down or sped up to that of its slowest GPU.

    Args:
        changed: GPUs that changed and are at the present; the GPUs of their gangs are appended.
        advance: brings a GPU to the present and appends it to `changed`.
    """
    gangs: dict[int, TaskRun] = {}
    at = 0
    while at < len(changed):
        of_gpu = changed[at].gangs.values()
        for gang in [gang for gang in of_gpu if not gang.mirrored and gang.running]:
            gangs[gang.id] = gang
            for gpu in gang.gpus:
                if not gpu.listed:
                    advance(gpu)
        at += 1
    if not gangs:
        return
    # A gang may have completed while its GPUs were advanced.
    running = [gang for gang in gangs.values() if gang.gpus]
    for gang in running:
        if gang.slowed:
            _hold(gang, gang.gpus, 0.0)
            gang.slowed = False
    paces_s = [[gpu.read().residents[gang.id].time_s for gpu in gang.gpus] for gang in running]
    for gang, times_s in zip(running, paces_s, strict=True):
        slowest_s = max(times_s)
        faster = [gpu for gpu, time_s in zip(gang.gpus, times_s, strict=True) if time_s < slowest_s]
        if faster:
            _hold(gang, faster, slowest_s)
            gang.slowed = True


def _hold(gang: TaskRun, gpus: Sequence[GpuState], time_s: float) -> None:
    for gpu in gpus:
        gpu.require_sharing("a gang").hold(gang.id, time_s)
        gpu.reading = None
