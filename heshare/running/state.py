"""The event loop's book-keeping: tasks, GPUs, and the views of them that a policy gets."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, overload

from heshare.devices.device import Device, Follows, Glance, Reading, Shares
from heshare.devices.failing import Fallible
from heshare.policies.policy import GpuView
from heshare.running.gangs import part
from heshare.running.views import RunningTasks
from heshare.world.catalogue import memory_mib
from heshare.world.task import Task
from heshare.world.training import speed
from heshare.world.workload import Workload

if TYPE_CHECKING:
    from heshare.running.clock import Clock


class State(Enum):
    """Where a task is in its life."""

    PENDING = "has not arrived yet"
    WAITING = "waits"
    LOADING = "loads on a GPU"
    RUNNING = "runs already"
    DONE = "has completed"
    FAILED = "has failed"


class Job:
    """A task during a run.

    Attributes:
        task: the task.
        state: where it is in its life.
        left: iterations still to do (at the task's own inference batch size and number of GPUs) when it last started
            or stopped.
        slots: its GPUs while it runs or loads, else none; the first carries its iterations.
        mps_pct: its MPS percentage there.
        sharing: how it shares them.
        workload: what it runs there; differs from the task's in the inference batch size if a policy says so.
        scale: iterations of the task for one iteration as it runs there.
        need_mib: device memory that it holds on each, MiB.
        held: whether a GPU that is too fast for its gang holds it back.
        since_s: when it started there, s.
        starts: how often it was started (tells a stale load from the present one).
    """

    __slots__ = (
        "held",
        "led",
        "left",
        "mps_pct",
        "need_mib",
        "power_w",
        "scale",
        "sharing",
        "since_s",
        "slots",
        "starts",
        "state",
        "task",
        "went_s",
        "workload",
    )

    def __init__(self, task: Task) -> None:
        self.task = task
        self.state = State.PENDING
        self.left = task.iterations
        self.slots: tuple[Slot, ...] = ()
        self.mps_pct = 100
        self.sharing = "mps"
        self.workload: Workload = task.workload
        self.scale = 1.0
        self.need_mib = memory_mib(task.workload)
        self.since_s = 0.0
        self.starts = 0
        self.held = False
        self.led = False
        self.went_s = 0.0
        self.power_w = 0.0

    @property
    def runs(self) -> bool:
        """Whether it runs, and does not wait or load."""
        return self.state is State.RUNNING

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """All but its GPUs, which the loop knows: graphs of jobs and GPUs are too deep to pickle."""
        return None, {**{name: getattr(self, name) for name in self.__slots__}, "slots": ()}

    def resize(self, batch_size: int | None, gpus: int) -> None:
        """Take another inference batch size, or with None the task's own, and a number of GPUs."""
        wanted = self.task.workload if batch_size is None else replace(self.task.workload, batch_size=batch_size)
        if wanted is not self.workload and wanted != self.workload:
            self.workload = wanted
            self.need_mib = memory_mib(wanted)
        self.scale = self.workload.batch_size / self.task.workload.batch_size
        if gpus != self.task.gpus:
            self.scale *= speed(self.task, gpus)

    def saved(self, done: float) -> float:
        """Of `done` iterations since it started, those that count when it is taken off: up to its last full epoch."""
        if self.task.epochs is None:
            return done
        epoch, before = self.task.iterations / self.task.epochs, self.task.iterations - self.left
        # What is a whole number of epochs but for rounding is one.
        return max(math.floor((before + done) / epoch + 1e-9) * epoch - before, 0.0)


class WaitingRoom(Sequence[Task]):
    """Tasks that have arrived and do not run, by (arrival, id); in and out in O(log n) and a memory move."""

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

    def _enter(self, task: Task) -> None:
        key = (task.arrival_s, task.id)
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._tasks.insert(place, task)

    def _leave(self, task: Task) -> None:
        place = bisect_left(self._keys, (task.arrival_s, task.id))
        del self._keys[place], self._tasks[place]


def enter(job: Job) -> None:
    """Put a job on the books of its GPUs."""
    task, need_mib, gang = job.task.id, job.need_mib, len(job.slots) > 1
    for slot in job.slots:
        slot.jobs[task] = job
        if gang:
            slot.gangs[task] = job
        slot.free_mib -= need_mib
        slot.reading = slot.seen = None


def leave(job: Job) -> None:
    """Take a job off the books of its GPUs; an empty one has all its memory, whatever was rounded before."""
    task, need_mib, gang = job.task.id, job.need_mib, len(job.slots) > 1
    for slot in job.slots:
        del slot.jobs[task]
        if gang:
            del slot.gangs[task]
        slot.free_mib = slot.free_mib + need_mib if slot.jobs else slot.all_mib
        slot.reading = slot.seen = None


class Slot:
    """One GPU during a run: its device, who is on it, and its latest reading.

    Attributes:
        index: the GPU's index in the cluster.
        device: the device.
        jobs: who runs or loads on it, by task id.
        reading: the latest reading, or None when something changed since.
        looked_s: when that reading was taken, s.
        free_mib: device memory that is free, MiB.
        all_mib: device memory that an empty GPU has, MiB.
        seen: what a policy has seen of it since something changed, or None.
        version: counts looks; a planned look of an older version is void.
        listed: whether it is on the loop's list of GPUs to look at again.
        gangs: those of the jobs that are on other GPUs too, by task id.
        shares: the device, if it knows gangs and other ways of sharing than MPS.
        follows: the device, if it need not be told what another one does too.
        fallible: the device, if tasks can fail on it without the run failing.
        told_lost: whether the loss of the GPU has been found.
    """

    __slots__ = (
        "_clock",
        "all_mib",
        "device",
        "fallible",
        "follows",
        "free_mib",
        "gangs",
        "index",
        "jobs",
        "listed",
        "looked_s",
        "reading",
        "seen",
        "shares",
        "told_lost",
        "version",
    )

    def __init__(self, index: int, device: Device, clock: Clock) -> None:
        self.index = index
        self.device = device
        self.jobs: dict[int, Job] = {}
        self.reading: Reading | None = None
        self.looked_s = 0.0
        self.free_mib = self.all_mib = device.gpu.memory_mib
        self.version = 0
        self.listed = False
        self.gangs: dict[int, Job] = {}
        self.follows = device if isinstance(device, Follows) else None
        self.shares = device if isinstance(device, Shares) else None
        self.fallible = device if isinstance(device, Fallible) else None
        self.told_lost = False
        self._clock = clock
        self.seen: GpuView | None = None

    def changed(self) -> None:
        """Forget the reading: something happened on this GPU."""
        self.reading = None
        self.seen = None

    def look(self) -> Reading:
        """The device's reading now; taken again only if something changed."""
        if self.reading is None:
            if self.is_led():
                part(next(iter(self.gangs.values())), self._clock.now_s())
            self.reading = self.device.read()
            self.looked_s = self.reading.time_s
        return self.reading

    def glance(self) -> Glance:
        """What of that the timeline keeps, and when to look again."""
        if self.follows is not None and self.reading is None and not (self.gangs and self.is_led()):
            seen = self.follows.glance()
            if seen is not None:
                return seen
        return Glance.of(self.look(), self.device.next_event_s())

    def is_led(self) -> bool:
        """Whether it does what the first GPU of a gang does, and its device has not been told."""
        for job in self.gangs.values():
            return job.led and job.slots[0] is not self
        return False

    def view(self) -> GpuView:
        """This GPU as a policy may see it; built once for each reading."""
        if self.seen is None:
            reading = self.look()
            self.seen = GpuView(
                self.index,
                self.device.gpu,
                RunningTasks(self, self._clock),
                reading.requested_mhz,
                reading.sm_mhz,
                reading.power_w,
                self.free_mib,
            )
        return self.seen
