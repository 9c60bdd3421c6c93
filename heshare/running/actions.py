"""Execution of a policy's actions on the devices, and what completes or fails there."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NoReturn, cast

from heshare.devices.device import Fallible, TaskFailure
from heshare.devices.emulated_device import EmulatedDevice, StatesAlone, due_alone_s
from heshare.policies.policy import Action, Event, EventKind, Migrate, Pause, SetClock, Start
from heshare.running.clock import COMPLETION, Clock, EventQueue
from heshare.running.gangs import keep_lockstep
from heshare.running.observer import Observer
from heshare.running.state import GpuState, TaskRun, TaskState, WaitingTasks
from heshare.running.timeline import Interval, TimelineRecorder
from heshare.shared.errors import DeviceError, InputError, PolicyError
from heshare.world.catalogue import memory_mib
from heshare.world.workload import SHARINGS

# Iterations that remain after a pause are rounded; this share of a task's iterations counts as none.
_NEGLIGIBLE = 1e-12
_MAX_CHECKS_WITHOUT_PROGRESS = 10_000
# Members of an enumeration that every task needs: a name of the module is found faster.
_COMPLETION, _WAITING, _RUNNING, _DONE = EventKind.COMPLETION, TaskState.WAITING, TaskState.RUNNING, TaskState.DONE


@dataclass(eq=False, repr=False)
class ActionExecutor:
    """Starts, stops and clocks tasks and GPUs, and keeps their state, the timeline and the scheduled checks up to date.

    Only GPUs that an event changes are advanced, read and scheduled again. `notify` passes an event to the policy and
    executes its actions. `start_cost_s` is the time that a task holds its memory and does nothing whenever it starts on
    a GPU, s. `unfinished` counts tasks that have neither completed nor finally failed; of `unreported` tasks, which
    have, the policy has not received the event yet. `watched` is whether the observer does anything.

    No device is asked about a task that has GPUs to itself which are alike, since its end is known from the start: only
    `_alone` changes, which has for each GPU this task, `alike` while it is empty, or None if its device is asked. The
    first `_noted` of the tasks that left are noted with their GPUs. Of what an event changes, `_freed` are the GPUs of
    such a task that ended, and `_begun` the ones that started. As soon as another GPU changes, these GPUs too are
    listed with it in `_changed`.
    """

    policy: str
    tasks: dict[int, TaskRun]
    gpus: list[GpuState]
    clock: Clock
    events: EventQueue
    recorder: TimelineRecorder
    observer: Observer
    notify: Callable[[Event], object]
    start_cost_s: float
    waiting: WaitingTasks = field(default_factory=WaitingTasks)
    remaining: dict[int, float] = field(default_factory=dict)
    unfinished: int = field(init=False)
    watched: bool = field(init=False)
    unreported: set[int] = field(default_factory=set)
    _changed: list[GpuState] = field(default_factory=list)
    _freed: tuple[int, ...] = ()
    _begun: list[TaskRun] = field(default_factory=list)
    _alone: dict[int, TaskRun | StatesAlone | None] = field(default_factory=dict)
    _noted: int = 0
    _checks_without_progress: int = 0

    def __post_init__(self) -> None:
        self.unfinished, self.watched = len(self.tasks), type(self.observer) is not Observer
        for gpu in self.gpus:
            if self.start_cost_s > 0:
                gpu.alike = None
            gpu.settle, self._alone[gpu.index] = self.settle, gpu.alike

    def execute(self, action: Action, now_s: float) -> None:
        """Execute one action other than `Wait`; a `PolicyError` if it is impossible."""
        if isinstance(action, Start):
            self.start(action, now_s)
        elif isinstance(action, SetClock):
            self._set_clock(action, now_s)
        elif isinstance(action, Pause):
            self._pause(action, now_s)
        elif isinstance(action, Migrate):
            self._migrate(action, now_s)
        else:
            self.refuse(action, f"is a {type(action).__name__}", "Return Start, SetClock, Pause, Migrate or Wait.")

    def refuse(self, action: Action, found: str, advice: str) -> NoReturn:
        """Raise the `PolicyError` of an impossible action."""
        raise PolicyError(f"{self.policy}, at {self.clock.now_s():g} s, {action}: {found}. {advice}")

    def add_waiting(self, task: TaskRun) -> None:
        """Add an arrived task to the waiting ones."""
        task.state = _WAITING
        self.waiting.add(task.spec)
        self.remaining[task.id] = task.remaining

    def advance(self, gpu: GpuState, now_s: float) -> None:
        """Bring a GPU to the present since it is about to change; what completed or failed there is the next event."""
        completed = self._advance_device(gpu, now_s)
        if completed:
            self._notify_next(Event(_COMPLETION, now_s, tuple(completed), gpu.index))
        if gpu.fallible is not None and (failure := self._take_failures(gpu, gpu.fallible, now_s)) is not None:
            self._notify_next(failure)

    def record_changes(self, now_s: float) -> None:
        """Read every GPU that changed, record it in the timeline and schedule its next check."""
        if not self._changed:
            if self._freed:
                self.recorder.place(now_s, self._freed)
            if self._begun:
                self._record_begun(now_s)
            self._freed = ()
            return
        changed, recorder = self._changed, self.recorder
        for gpu in changed:
            if gpu.gangs:
                keep_lockstep(changed, lambda gpu: self.advance(gpu, now_s))
                break
        for gpu in changed:
            gpu.listed = False
            gpu.version += 1
            task = self._alone[gpu.index]
            if type(task) is TaskRun or gpu.alone:
                recorder.place(now_s, (gpu.index,))
                next_s = task.due_s if type(task) is TaskRun and task.indices[0] == gpu.index else math.inf
            else:
                brief = gpu.read_brief()
                recorder.observe(gpu.index, now_s, brief)
                next_s = brief.next_s
            if next_s < math.inf:
                self.events.schedule(next_s if next_s > now_s else now_s, COMPLETION, self._check, gpu, gpu.version)
        changed.clear()

    def _record_begun(self, now_s: float) -> None:
        freed, begun = self._freed, self._begun
        for task in begun:
            self.recorder.place(now_s, task.indices)
        if freed and len(begun) > 1:
            # As if GPUs were read in the order in which they changed.
            begun.sort(key=lambda task: freed.index(task.indices[0]) if task.indices[0] in freed else len(freed))
        for task in begun:
            gpu = self.gpus[task.indices[0]]
            gpu.version += 1
            self.events.schedule(task.due_s, COMPLETION, self._check, gpu, gpu.version)
        begun.clear()

    def _list_alone(self) -> None:
        left, gpus = self.recorder.left, self.gpus
        if self._noted < len(left):
            for ended in left[self._noted :]:
                for index in ended[1] if len(ended) > len(Interval._fields) else ():
                    gpus[index].alone.append(ended)
            self._noted = len(left)
        if self._freed or self._begun:
            begun = chain.from_iterable([task.indices for task in self._begun])
            self._list([gpus[index] for index in (*self._freed, *begun)])
            self._freed, self._begun = (), []

    def schedule_check(self, gpu: GpuState, time_s: float) -> None:
        """Schedule a check of a GPU, which is void if the GPU changes before."""
        self.events.schedule(time_s, COMPLETION, self._check, gpu, gpu.version)

    def is_void(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        """Return whether a scheduled call is the check of a GPU that has changed since."""
        return call == self._check and bool(arguments[1] != arguments[0].version)

    def _end_alone(self, now_s: float, task: TaskRun, alike: StatesAlone | None) -> None:
        task_id, indices = task.id, task.indices
        for index in indices:
            self._alone[index] = alike
        left = task.interval(now_s, task.remaining, "completed")
        self.recorder.left.append((*left, task.due_s, *task.alone))
        self._freed = indices[0], *indices[:0:-1]  # the order in which devices that are asked come to be changed
        task.indices, task.remaining, task.state = (), 0.0, _DONE
        self.unfinished, self._checks_without_progress = self.unfinished - 1, 0
        if self.watched:
            self.observer.on_interval_end(Interval(task_id, indices[0], *left[2:]), None)
        self.notify(Event(_COMPLETION, now_s, (task_id,), indices[0]))

    def _check(self, now_s: float, gpu: GpuState, version: int) -> None:
        if version != gpu.version:
            return
        if type(holder := self._alone[gpu.index]) is TaskRun:
            self._end_alone(now_s, holder, gpu.alike)
            return
        completed = self._advance_device(gpu, now_s)
        failure = None if gpu.fallible is None else self._take_failures(gpu, gpu.fallible, now_s)
        if completed:
            self._checks_without_progress = 0
            self.notify(Event(_COMPLETION, now_s, tuple(completed), gpu.index))
        if failure is not None:
            self.notify(replace(failure, time_s=self.clock.now_s()))
        elif not completed:
            self._check_progress(gpu, now_s)
            self.record_changes(now_s)

    def _check_progress(self, gpu: GpuState, now_s: float) -> None:
        self._checks_without_progress = self._checks_without_progress + 1 if gpu.device.next_event_s() <= now_s else 0
        if self._checks_without_progress > _MAX_CHECKS_WITHOUT_PROGRESS:
            found = f"{gpu} announces an event at {now_s:g} s again and again, and nothing completes"
            raise DeviceError(f"{found}. Its next_event_s must lie ahead once advance has been called.")

    def _notify_next(self, event: Event) -> None:
        self.unreported.update(event.tasks)
        self.events.schedule(event.time_s, COMPLETION, self._notify_now, event)

    def _notify_now(self, now_s: float, event: Event) -> None:
        self.unreported.difference_update(event.tasks)
        self.notify(replace(event, time_s=now_s))

    def settle(self, gpu: GpuState) -> None:
        """Let device and timeline know of the tasks that had, or have, a GPU to themselves."""
        self._list_alone()
        task = self._alone[gpu.index]
        if not isinstance(task, TaskRun):
            self._catch_up(gpu)
            self._alone[gpu.index] = None if gpu.tasks else gpu.alike
            return
        task.occupy(tuple([self.gpus[index] for index in task.indices]), task.indices)
        self._alone.update(dict.fromkeys(task.indices))
        for each in task.gpus:
            self._catch_up(each)
            each.device.advance(task.started_s)
            task.start_on(each, task.remaining / task.scale if each is task.gpus[0] else None)
            self.recorder.observe(each.index, task.started_s, each.read_brief())

    def _catch_up(self, gpu: GpuState) -> None:
        if ended := gpu.alone:
            gpu.alone = []
            cast(EmulatedDevice, gpu.device).catch_up(ended, gpu.index)
            self.recorder.add_alone(gpu.index, ended, gpu.read_brief())

    def _list(self, gpus: Iterable[GpuState]) -> None:
        for gpu in gpus:
            if not gpu.listed:
                gpu.listed = True
                self._changed.append(gpu)

    def _advance_device(self, gpu: GpuState, now_s: float) -> list[int]:
        if self._freed or self._begun:
            self._list_alone()
        if gpu.alike is not None:
            self.settle(gpu)
        completed = gpu.device.advance(now_s)
        gpu.seen = None
        self._list((gpu,))
        for task_id in completed:
            self._complete(self.tasks[task_id], self.tasks[task_id].gpus[1:], now_s)
        return completed

    def _complete(self, task: TaskRun, others: Sequence[GpuState], now_s: float) -> None:
        if others:
            self._stop(task, others, now_s)
        self._vacate(task, now_s, task.remaining, "completed")
        task.remaining, task.state = 0.0, _DONE
        self.unfinished -= 1

    def _take_failures(self, gpu: GpuState, device: Fallible, now_s: float) -> Event | None:
        failures, lost = device.take_failures(), bool(device.lost) and not gpu.loss_reported
        drained = bool(getattr(device, "drained", ""))
        change = None if drained == gpu.drain_reported else drained
        if not (failures or lost or change is not None):
            return None
        gpu.loss_reported, gpu.drain_reported = gpu.loss_reported or lost, drained
        for failure in failures:
            self._fail(self.tasks[failure.task_id], gpu, now_s, failure)
        ids = tuple([failure.task_id for failure in failures])
        alone = tuple([failure.task_id for failure in failures if failure.alone])
        return Event(EventKind.FAILURE, now_s, ids, gpu.index, alone, lost, change)

    def _fail(self, task: TaskRun, gpu: GpuState, now_s: float, failure: TaskFailure) -> None:
        if task.state is _RUNNING:
            self._stop(task, [other for other in task.gpus if other is not gpu], now_s)
        self._vacate(task, now_s, 0.0, f"failed: {failure.kind}", failure)
        if self.observer.should_retry(failure):
            self.add_waiting(task)
        else:
            task.state = TaskState.FAILED
            self.unfinished -= 1

    def start(self, action: Start, now_s: float) -> None:
        """Start a task; a `PolicyError` if it is impossible."""
        task = self.tasks.get(action.task)
        if task is None or task.state is not _WAITING or not self._starts_alone(action, task, now_s):
            task, gpus = self._task_of(action), self._gpus_of(action)
            if task.state is not _WAITING:
                self.refuse(action, f"task {task.id} {task.state.value}", "Start only tasks of view.waiting.")
            self._place(action, task, gpus, now_s)
        self.waiting.remove(task.spec)
        del self.remaining[task.id]

    def _pause(self, action: Pause, now_s: float) -> None:
        task = self._task_of(action)
        if self._take_off(action, task, now_s, "paused"):
            self.add_waiting(task)

    def _migrate(self, action: Migrate, now_s: float) -> None:
        task, gpus = self._task_of(action), self._gpus_of(action)
        if self._take_off(action, task, now_s, "migrated") and not self._starts_alone(action, task, now_s):
            self._place(action, task, gpus, now_s)

    def _set_clock(self, action: SetClock, now_s: float) -> None:
        gpu = self._gpu_of(action, action.gpu)
        if action.sm_mhz is not None:
            try:
                gpu.device.gpu.check_clock(action.sm_mhz)
            except InputError as error:
                raise PolicyError(f"{self.policy}, {action}: {error}") from error
        self.advance(gpu, now_s)
        gpu.device.set_clock(action.sm_mhz)
        if gpu.alike is not None:
            gpu.alike = cast(EmulatedDevice, gpu.device).alike
            self._alone[action.gpu] = None if gpu.tasks else gpu.alike

    def _place(self, action: Start | Migrate, task: TaskRun, gpus: tuple[GpuState, ...], now_s: float) -> None:
        if len(gpus) != task.spec.gpus and len(gpus) not in task.spec.widths:
            widths = sorted({task.spec.gpus, *task.spec.widths})
            runs = f"runs on {' or '.join(map(str, widths))} GPU{'s' * (widths != [1])}"
            self.refuse(action, f"task {task.id} {runs}, not {len(gpus)}", "Name as many in gpu and also.")
        if action.batch_size is not None and action.batch_size < 1:
            self.refuse(action, f"an inference batch size of {action.batch_size}", "Choose one of at least 1.")
        task.resize(action.batch_size, len(gpus))
        for gpu in gpus:
            self.advance(gpu, now_s)
            self._check_room(action, task, gpu)
        task.mps_pct, task.sharing, task.started_s, task.starts = action.mps_pct, action.sharing, now_s, task.starts + 1
        task.occupy(gpus, (action.gpu, *action.also))
        self._alone.update(dict.fromkeys(task.indices))
        if self.start_cost_s > 0:
            task.state, ready_s = TaskState.LOADING, now_s + self.start_cost_s
            self.events.schedule(ready_s, COMPLETION, self._end_loading, task, task.starts)
        else:
            self._run(task)

    def _starts_alone(self, action: Start | Migrate, task: TaskRun, now_s: float) -> bool:
        # Start a task if it will have all its GPUs to itself and do the same on each, so that no device need be asked.
        places, spec, size = self._alone, task.spec, action.batch_size
        alike, indices = places.get(action.gpu), (action.gpu, *action.also)
        width = len(indices)
        if type(alike) is not dict or action.sharing != "mps":
            return False
        if task.starts or size is not None or width != spec.gpus:
            if (width != spec.gpus and width not in spec.widths) or (size is not None and size < 1):
                return False
            task.resize(size, width)
        for index in indices:
            if places.get(index) is not alike:  # or it is named twice
                break
            places[index] = task
        else:
            alone = alike.get((task.workload, action.mps_pct))
            if alone is None:
                gpu = self.gpus[action.gpu]  # the others are alike and empty too, so there is room on all or none
                self._check_room(action, task, gpu)
                alone = cast(EmulatedDevice, gpu.device).state_alone(task.workload, action.mps_pct)
            due_s = due_alone_s(now_s, task.remaining / task.scale, alone.iteration_s)
            if due_s < math.inf:
                task.indices, task.mps_pct, task.sharing, task.started_s = indices, action.mps_pct, "mps", now_s
                task.due_s, task.alone, task.state, task.starts = due_s, alone, _RUNNING, task.starts + 1
                self._begun.append(task)
                if self._changed:
                    self._list_alone()
                return True
        places.update({index: alike for index in indices if places.get(index) is task})
        return False

    def _end_loading(self, now_s: float, task: TaskRun, start: int) -> None:
        if task.starts == start and task.state is TaskState.LOADING:
            for gpu in task.gpus:
                self.advance(gpu, now_s)
            self._run(task)
            self.record_changes(now_s)

    def _run(self, task: TaskRun) -> None:
        task.state = _RUNNING
        task.start_on(task.gpus[0], task.remaining / task.scale)
        if len(task.gpus) > 1:
            for gpu in task.gpus:
                gpu.require_sharing("a gang")
            for gpu in task.gpus[1:]:
                task.start_on(gpu, None)

    def _take_off(self, action: Pause | Migrate, task: TaskRun, now_s: float, outcome: str) -> bool:
        # False if it has just completed or failed instead.
        if task.state not in (_RUNNING, TaskState.LOADING):
            if task.id in self.unreported:
                return False
            self.refuse(action, f"task {task.id} {task.state.value}", "Name a task that runs on a GPU.")
        for index in task.indices:
            self.advance(self.gpus[index], now_s)
        if not task.gpus:
            return False
        first = task.gpus[0]
        done = 0.0 if task.state is TaskState.LOADING else self._stop(task, task.gpus, now_s) * task.scale
        if task.remaining - done <= _NEGLIGIBLE * task.spec.iterations:
            self._complete(task, (), now_s)
            self._notify_next(Event(_COMPLETION, now_s, (task.id,), first.index))
            return False
        done = task.saved_iterations(done)
        self._vacate(task, now_s, done, outcome)
        task.remaining -= done
        return True

    def _stop(self, task: TaskRun, gpus: Sequence[GpuState], now_s: float) -> float:
        done = 0.0
        for gpu in reversed(gpus):
            self.advance(gpu, now_s)
            done = gpu.device.stop(task.id)
            gpu.seen = None
        return done

    def _vacate(
        self, task: TaskRun, now_s: float, done: float, outcome: str, failure: TaskFailure | None = None
    ) -> None:
        gpus, left = task.indices, task.interval(now_s, done, outcome)
        self.recorder.left.append(left)
        task.vacate()
        for index in gpus:
            if not self.gpus[index].tasks:
                self._alone[index] = self.gpus[index].alike
        if self.watched:
            self.observer.on_interval_end(Interval(task.id, gpus[0], *left[2:]), failure)

    def _check_room(self, action: Start | Migrate, task: TaskRun, gpu: GpuState) -> None:
        kind = gpu.device.gpu
        if not 1 <= action.mps_pct <= 100:
            self.refuse(action, f"an MPS percentage of {action.mps_pct}", "Choose one from 1 to 100.")
        if len(gpu.tasks) >= kind.mps_clients:
            self.refuse(action, f"{gpu} has {len(gpu.tasks)} MPS clients", "It takes no more.")
        for other in gpu.tasks.values():
            if action.sharing.split("-")[0] != other.sharing.split("-")[0]:
                found = f"task {other.id} on {gpu} shares it by {other.sharing}"
                self.refuse(action, found, "Share as the others do, or choose another GPU.")
        needed_mib = memory_mib(task.workload)
        if needed_mib > gpu.free_mib:
            room = f"{gpu} has {gpu.free_mib:.0f} MiB free of {kind.memory_mib:.0f} MiB"
            found = f"{task.workload} needs {needed_mib:.0f} MiB and {room}"
            self.refuse(action, found, "Wait until there is room, or choose another GPU.")

    def _task_of(self, action: Start | Pause | Migrate) -> TaskRun:
        task = self.tasks.get(action.task)
        if task is None:
            self.refuse(action, f"no task {action.task} in this run", "Name a task of view.waiting, or one that runs.")
        return task

    def _gpu_of(self, action: Action, index: int) -> GpuState:
        if not 0 <= index < len(self.gpus):
            self.refuse(action, f"no GPU {index}", f"GPUs are 0 to {len(self.gpus) - 1}.")
        return self.gpus[index]

    def _gpus_of(self, action: Start | Migrate) -> tuple[GpuState, ...]:
        if action.sharing not in SHARINGS:
            self.refuse(action, f"sharing by {action.sharing!r}", f"Choose one of {', '.join(SHARINGS)}.")
        gpus = tuple([self._gpu_of(action, index) for index in (action.gpu, *action.also)])
        if len(gpus) > 1 and len({gpu.index for gpu in gpus}) < len(gpus):
            self.refuse(action, "a GPU twice", "Give a gang different GPUs.")
        return gpus
