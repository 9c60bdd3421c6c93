"""Event loop: processes arrivals, completions, failures and ticks under a policy, in virtual and in wall time.

There are no processes as in SimPy: the queue holds calls of the loop's own functions. They are made in the total order
(moment, priority, sequence): completions before arrivals before ticks, and of equal ones the one that was scheduled
first. What lies within 1e-9 s is at one moment (`heshare.running.clock`). At each call:

1. a check, or an action, brings the GPUs that it concerns to the present; tasks may complete or fail there;
2. the policy gets the event and a view of the cluster, and returns actions;
3. the actions are executed at once, in their order;
4. every GPU that changed is read: the timeline gets its new state, and its next check is scheduled, for the moment of
   its next completion. A check that was scheduled before is void, since the GPU's `version` has grown.

The path of a task: `_arrive` lets it wait and passes the event to the policy, which answers `Start`; `_start` puts it
on its GPUs and starts it on their devices; `_record_changes` schedules the check at which `_advance` finds it
completed; `_complete` takes it off its GPUs, and the policy gets the event. Tasks that arrive at one moment are one
event. Completions are one event for each GPU.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from time import perf_counter
from types import MappingProxyType
from typing import NoReturn

from heshare.devices.device import Device, TaskFailure
from heshare.policies.policy import (
    Action,
    Event,
    EventKind,
    Migrate,
    Pause,
    Policy,
    SetClock,
    Start,
    View,
    Wait,
)
from heshare.running.clock import ARRIVAL, COMPLETION, MOMENT_S, TICK, Clock, EventQueue, Scheduled, VirtualClock
from heshare.running.gangs import keep_lockstep
from heshare.running.observer import Observer
from heshare.running.state import GpuState, GpuViews, TaskRun, TaskState, WaitingTasks
from heshare.running.timeline import Interval, TimelineRecorder
from heshare.shared.errors import DeviceError, InputError, PolicyError
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import SHARINGS

_MOST_ACTIONS = 1_000_000
"""Most actions of one decision; a generator that never ends would fill the memory."""
_MAX_IDLE_TICKS = 1_000
_MAX_IDLE_WAITS = 100_000
_MAX_CHECKS_WITHOUT_PROGRESS = 10_000
_NEGLIGIBLE = 1e-12
"""Iterations that remain after a pause are rounded; this share of a task's iterations counts as none."""


class Loop:
    """The event loop of one run.

    The policy is already reset. `start_cost_s` is the time that a task holds its memory and does nothing whenever it
    starts on a GPU, s. The `observer` is called with each decision before it takes effect, and with each interval that
    has ended.

    Attributes:
        tasks: the tasks, by id.
        gpus: the GPUs.
        recorder: records the timeline.
        planning_s: wall time spent in the policy, s.
        events: events that the policy has received.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        cluster: Cluster,
        policy: Policy,
        devices: Sequence[Device],
        clock: Clock,
        *,
        start_cost_s: float = 0.0,
        observer: Observer | None = None,
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.tasks = {task.id: TaskRun.of(task) for task in tasks}
        self.gpus = [GpuState(index, device, clock) for index, device in enumerate(devices)]
        self.recorder = TimelineRecorder(cluster.labels)
        self.planning_s = 0.0
        self.events = 0
        self._clock = clock
        self._start_cost_s = start_cost_s
        self._observer = observer or Observer()
        self._queue = EventQueue()

        # Of the tasks: those still to arrive (the last one first), those that wait, how many have neither completed nor
        # finally failed, and those that have, of which the policy has not received the event yet.
        self._arrivals = sorted(self.tasks.values(), key=lambda task: (task.spec.arrival_s, task.id), reverse=True)
        self._pending = len(self.tasks)
        self._waiting = WaitingTasks()
        self._remaining: dict[int, float] = {}
        self._unfinished = len(self.tasks)
        self._unreported: set[int] = set()

        # The GPUs that the present event has changed, in the order of the changes.
        self._changed: list[GpuState] = []

        # What shows that a run gets nowhere.
        self._begun = False
        self._scheduled_ticks = 0
        self._idle_ticks = 0
        self._idle_waits = 0
        self._checks_without_progress = 0

    @property
    def ended(self) -> int:
        """Number of tasks that have completed or finally failed."""
        return len(self.tasks) - self._unfinished

    def view(self, now_s: float) -> View:
        """Return the cluster as the policy sees it."""
        return View(now_s, self._waiting, MappingProxyType(self._remaining), GpuViews(self.gpus), self._pending)

    # Events.

    def steps(self) -> Iterator[None]:
        """Process the next event at each step until every task has completed.

        Raises:
            PolicyError: an impossible action, or tasks that no action will ever start.
            DeviceError: a device refused, failed or makes no progress.
        """
        if not self._begun:
            self._begin()

        while self._unfinished or self._unreported:
            if not self._queue:
                raise self._stranded("nothing runs, nothing is still to come, and the policy starts nothing")

            # On real GPUs the observer waits, and may return early with GPUs where a process has ended.
            for index in self._observer.wait(self._queue.earliest().time_s):
                gpu = self.gpus[index]
                self._queue.schedule(self._clock.now_s(), COMPLETION, self._check, gpu, gpu.version)

            event = self._queue.pop()
            now_s = self._clock.wait_until(event.time_s)
            event.call(now_s, *event.arguments)
            yield

    def _begin(self) -> None:
        self._begun = True
        now_s = self._clock.now_s()
        for gpu in self.gpus:
            self._advance_and_report_later(gpu, now_s)
        self._record_changes(now_s)

        self._schedule_arrival()
        if self.policy.tick_s is not None:
            self._schedule_tick(self.policy.tick_s, 1)

    def _schedule_arrival(self) -> None:
        """Schedule the next arrival; tasks that arrive at one moment are one event."""
        arrivals = self._arrivals
        if not arrivals:
            return
        tasks = [arrivals.pop()]
        last_s = tasks[0].spec.arrival_s + MOMENT_S
        while arrivals and arrivals[-1].spec.arrival_s <= last_s:
            tasks.append(arrivals.pop())
        self._queue.schedule(tasks[-1].spec.arrival_s, ARRIVAL, self._arrive, tasks)

    def _arrive(self, now_s: float, tasks: Sequence[TaskRun]) -> None:
        for task in tasks:
            self._let_wait(task)
        self._pending -= len(tasks)
        self._schedule_arrival()
        self._notify(Event(EventKind.ARRIVAL, now_s, tuple([task.id for task in tasks])))

    def _check(self, now_s: float, gpu: GpuState, version: int) -> None:
        """Look at a GPU at which something should have completed, unless it has changed since this was scheduled."""
        if version != gpu.version:
            return

        events = self._advance(gpu, now_s)
        if events:
            # The policy answers one event at a time; until it has received the others, it may not know of them.
            first, *others = events
            for event in others:
                self._report_later(event)
            self._notify(replace(first, time_s=self._clock.now_s()))
            self._checks_without_progress = 0
            return

        # A device that is polled has nothing to tell, and says when to look again.
        self._checks_without_progress += 1
        if gpu.device.next_event_s() > now_s:
            self._checks_without_progress = 0
        if self._checks_without_progress > _MAX_CHECKS_WITHOUT_PROGRESS:
            found = f"{gpu} announces an event at {now_s:g} s again and again, and nothing completes"
            raise DeviceError(f"{found}. Its next_event_s must lie ahead once advance has been called.")
        self._record_changes(now_s)

    def _report_later(self, event: Event) -> None:
        """Let the policy receive an event after the present one: it happened while actions were executed."""
        self._unreported.update(event.tasks)
        self._queue.schedule(event.time_s, COMPLETION, self._report, event)

    def _report(self, now_s: float, event: Event) -> None:
        self._unreported.difference_update(event.tasks)
        self._notify(replace(event, time_s=now_s))

    def _schedule_tick(self, time_s: float, number: int) -> None:
        """Schedule a tick; `number` counts the periodic ticks from 1, and is 0 for the single tick of a `Wait`."""
        self._scheduled_ticks += 1
        self._queue.schedule(time_s, TICK, self._tick, number)

    def _tick(self, now_s: float, number: int) -> None:
        self._scheduled_ticks -= 1
        acted = self._notify(Event(EventKind.TICK, now_s))
        runs = self._unfinished > self._pending + len(self._waiting)

        self._idle_waits = 0 if self._pending or runs else self._idle_waits + 1
        if self._idle_waits > _MAX_IDLE_WAITS and self._unfinished:
            raise self._stranded(f"nothing runs, nothing is still to come, and {_MAX_IDLE_WAITS} ticks started nothing")

        tick_s = self.policy.tick_s
        if number and tick_s is not None:
            self._check_idle(acted, runs)
            # Multiples, not sums, so that the thousandth tick is where it should be; ticks missed live are dropped.
            number = max(number + 1, math.floor(now_s / tick_s) + 1)
            if not acted:
                number += self._skipped_ticks(number, tick_s)
            self._schedule_tick(number * tick_s, number)

    def _skipped_ticks(self, number: int, tick_s: float) -> int:
        """Return how many ticks a policy with `ticks_on_change` need not get; they count as received.

        In virtual time nothing changes between events, so such a policy returns nothing for every tick before the next.
        """
        if not self.policy.ticks_on_change or not isinstance(self._clock, VirtualClock):
            return 0
        while self._queue and self._is_void(self._queue.earliest()):
            self._queue.discard_earliest()
        if not self._queue:
            return 0
        skipped = max(math.floor(self._queue.earliest().time_s / tick_s) - number, 0)
        self.events += skipped
        return skipped

    def _is_void(self, scheduled: Scheduled) -> bool:
        if scheduled.call != self._check:
            return False
        gpu, version = scheduled.arguments
        return bool(version != gpu.version)

    def _check_idle(self, acted: bool, runs: bool) -> None:
        """Raise `PolicyError` for a policy that leaves everything idle and only sets clocks, or does nothing."""
        idle = self._unfinished and not (self._pending or self._scheduled_ticks or runs)
        self._idle_ticks = self._idle_ticks + 1 if idle else 0
        if idle and (not acted or self._idle_ticks > _MAX_IDLE_TICKS):
            raise self._stranded("nothing runs, nothing is still to come, and a tick started nothing")

    # Decisions.

    def _notify(self, event: Event) -> bool:
        """Let the policy decide, execute its actions and record what changed; return whether it acted."""
        before_s = perf_counter()
        actions = self._actions_of(self.policy.decide(event, self.view(event.time_s)))
        self.planning_s += perf_counter() - before_s
        self.events += 1
        self._observer.on_decision(event, actions)

        now_s = self._clock.now_s()
        for action in actions:
            # Journalling a decision may take longer than its wait, which therefore counts from the event.
            self._execute(action, event.time_s if isinstance(action, Wait) else now_s)
        self._record_changes(now_s)
        return bool(actions)

    def _actions_of(self, answer: object) -> list[Action]:
        at = f"{self.policy.name}, at {self._clock.now_s():g} s"
        if not isinstance(answer, Iterable):
            advice = "Return a list of actions, empty for none, or yield them."
            raise PolicyError(f"{at}: decide returned {answer!r}. {advice}")

        actions = list(islice(answer, _MOST_ACTIONS + 1))
        if len(actions) > _MOST_ACTIONS:
            raise PolicyError(f"{at}: decide returned more than {_MOST_ACTIONS} actions. End its loop.")
        return actions

    # Actions.

    def _execute(self, action: Action, now_s: float) -> None:
        if isinstance(action, Start):
            self._start(action, now_s)
        elif isinstance(action, SetClock):
            self._set_clock(action, now_s)
        elif isinstance(action, Pause):
            self._pause(action, now_s)
        elif isinstance(action, Migrate):
            self._migrate(action, now_s)
        elif isinstance(action, Wait):
            self._wait(action, now_s)
        else:
            self._refuse(action, f"is a {type(action).__name__}", "Return Start, SetClock, Pause, Migrate or Wait.")

    def _start(self, action: Start, now_s: float) -> None:
        task = self._task_of(action)
        gpus = self._gpus_of(action)
        if task.state is not TaskState.WAITING:
            self._refuse(action, f"task {task.id} {task.state.value}", "Start only tasks of view.waiting.")

        self._place(action, task, gpus, now_s)
        self._waiting.leave(task.spec)
        del self._remaining[task.id]

    def _pause(self, action: Pause, now_s: float) -> None:
        task = self._task_of(action)
        if self._take_off(action, task, now_s, "paused"):
            self._let_wait(task)

    def _migrate(self, action: Migrate, now_s: float) -> None:
        task = self._task_of(action)
        gpus = self._gpus_of(action)
        if self._take_off(action, task, now_s, "migrated"):
            self._place(action, task, gpus, now_s)

    def _set_clock(self, action: SetClock, now_s: float) -> None:
        gpu = self._gpu_of(action, action.gpu)
        if action.sm_mhz is not None:
            try:
                gpu.device.gpu.check_clock(action.sm_mhz)
            except InputError as error:
                raise PolicyError(f"{self.policy.name}, {action}: {error}") from error

        self._advance_and_report_later(gpu, now_s)
        gpu.device.set_clock(action.sm_mhz)

    def _wait(self, action: Wait, now_s: float) -> None:
        if not now_s < action.until_s < math.inf:
            self._refuse(action, f"it is {now_s:g} s", "Wait for a finite time ahead.")
        self._schedule_tick(action.until_s, 0)

    def _let_wait(self, task: TaskRun) -> None:
        task.state = TaskState.WAITING
        self._waiting.arrive(task.spec)
        self._remaining[task.id] = task.remaining

    def _place(self, action: Start | Migrate, task: TaskRun, gpus: tuple[GpuState, ...], now_s: float) -> None:
        """Put a task on GPUs, where it loads first if that takes time."""
        self._check_form(action, task, len(gpus))
        task.resize(action.batch_size, len(gpus))
        for gpu in gpus:
            self._advance_and_report_later(gpu, now_s)
            self._check_room(action, task, gpu)

        task.mps_pct = action.mps_pct
        task.sharing = action.sharing
        task.started_s = now_s
        task.starts += 1
        task.occupy(gpus)

        if self._start_cost_s > 0:
            task.state = TaskState.LOADING
            ready_s = now_s + self._start_cost_s
            self._queue.schedule(ready_s, COMPLETION, self._end_loading, task, task.starts)
        else:
            self._run(task)

    def _end_loading(self, now_s: float, task: TaskRun, start: int) -> None:
        if task.starts != start or task.state is not TaskState.LOADING:
            return
        for gpu in task.gpus:
            self._advance_and_report_later(gpu, now_s)
        self._run(task)
        self._record_changes(now_s)

    def _run(self, task: TaskRun) -> None:
        """Start a task on its devices. The first one counts its iterations, the others of a gang run with it."""
        task.state = TaskState.RUNNING
        first, *others = task.gpus
        task.start_on(first, task.remaining / task.scale)
        for gpu in others:
            task.start_on(gpu, None)

        if others:
            for gpu in task.gpus:
                gpu.device.hold(task.id, 0.0)  # a device that cannot hold a task back refuses the gang here

    def _take_off(self, action: Pause | Migrate, task: TaskRun, now_s: float, outcome: str) -> bool:
        """Take a task off its GPUs; return False if it has just completed or failed instead."""
        if task.state not in (TaskState.RUNNING, TaskState.LOADING):
            if task.id in self._unreported:
                return False
            self._refuse(action, f"task {task.id} {task.state.value}", "Name a task that runs on a GPU.")

        gpus = task.gpus
        for gpu in gpus:
            self._advance_and_report_later(gpu, now_s)
        if not task.gpus:
            return False

        done = 0.0
        if task.state is TaskState.RUNNING:
            # The first device counts the iterations.
            for gpu in reversed(gpus):
                done = gpu.device.stop(task.id) * task.scale
        if task.remaining - done <= _NEGLIGIBLE * task.spec.iterations:
            self._complete(task, now_s)
            self._report_later(Event(EventKind.COMPLETION, now_s, (task.id,), gpus[0].index))
            return False

        done = task.saved_iterations(done)
        self._vacate(task, now_s, done, outcome)
        task.remaining -= done
        return True

    # What completes or fails.

    def _advance(self, gpu: GpuState, now_s: float) -> list[Event]:
        """Bring a GPU to the present; return what completed and failed there, which its tasks have left.

        A completed task of a gang is stopped on its other GPUs, which brings these to the present too; what completes
        there is reported later. A GPU at the present has nothing more to tell, so this ends.
        """
        completed = gpu.device.advance(now_s)
        gpu.forget()
        if not gpu.changed:
            gpu.changed = True
            self._changed.append(gpu)

        events: list[Event] = []
        for task_id in completed:
            task = self.tasks[task_id]
            self._stop_elsewhere(task, gpu, now_s)
            self._complete(task, now_s)
        if completed:
            events.append(Event(EventKind.COMPLETION, now_s, tuple(completed), gpu.index))

        failure = self._take_failures(gpu, now_s)
        if failure is not None:
            events.append(failure)
        return events

    def _advance_and_report_later(self, gpu: GpuState, now_s: float) -> None:
        """Bring a GPU to the present since it is about to change; what completed there is an event of its own."""
        for event in self._advance(gpu, now_s):
            self._report_later(event)

    def _stop_elsewhere(self, task: TaskRun, gpu: GpuState, now_s: float) -> None:
        """Stop a task of a gang on its GPUs but one, which brings these to the present."""
        for other in reversed(task.gpus):
            if other is not gpu:
                self._advance_and_report_later(other, now_s)
                other.device.stop(task.id)

    def _complete(self, task: TaskRun, now_s: float) -> None:
        self._vacate(task, now_s, task.remaining, "completed")
        task.remaining = 0.0
        task.state = TaskState.DONE
        self._unfinished -= 1

    def _take_failures(self, gpu: GpuState, now_s: float) -> Event | None:
        """Return what a device reports since the last time: failed tasks, its loss, or that it takes no new ones."""
        failures = gpu.device.take_failures()
        lost = bool(gpu.device.lost) and not gpu.loss_reported
        drained = bool(gpu.device.drained)
        change = None if drained == gpu.drain_reported else drained
        if not failures and not lost and change is None:
            return None

        gpu.loss_reported = gpu.loss_reported or lost
        gpu.drain_reported = drained
        for failure in failures:
            self._fail(self.tasks[failure.task_id], gpu, now_s, failure)
        return Event(
            EventKind.FAILURE,
            now_s,
            tasks=tuple([failure.task_id for failure in failures]),
            gpu=gpu.index,
            alone=tuple([failure.task_id for failure in failures if failure.alone]),
            lost=lost,
            drained=change,
        )

    def _fail(self, task: TaskRun, gpu: GpuState, now_s: float, failure: TaskFailure) -> None:
        if task.running:
            self._stop_elsewhere(task, gpu, now_s)
        self._vacate(task, now_s, 0.0, f"failed: {failure.kind}", failure)

        if self._observer.should_retry(failure):
            self._let_wait(task)
        else:
            task.state = TaskState.FAILED
            self._unfinished -= 1

    # What is recorded.

    def _vacate(
        self, task: TaskRun, now_s: float, done: float, outcome: str, failure: TaskFailure | None = None
    ) -> None:
        """Take a task off its GPUs, and record the interval that ends; of a gang each GPU did the same part."""
        indices = [gpu.index for gpu in task.gpus]
        part = done / len(indices)
        size = task.workload.batch_size
        intervals = [
            Interval(task.id, index, task.started_s, now_s, task.mps_pct, size, part, outcome) for index in indices
        ]
        self.recorder.intervals += intervals
        task.vacate()
        self._observer.on_interval_end(intervals[0], failure)

    def _record_changes(self, now_s: float) -> None:
        """Read every GPU that changed, record it in the timeline, and schedule the check of its next completion."""
        keep_lockstep(self._changed, lambda gpu: self._advance_and_report_later(gpu, now_s))

        for gpu in self._changed:
            gpu.changed = False
            gpu.version += 1
            self.recorder.observe(gpu.index, now_s, gpu.read())
            next_s = gpu.device.next_event_s()
            if next_s < math.inf:
                self._queue.schedule(max(next_s, now_s), COMPLETION, self._check, gpu, gpu.version)
        self._changed.clear()

    # What is refused.

    def _refuse(self, action: Action, found: str, advice: str) -> NoReturn:
        """Raise the `PolicyError` of an impossible action."""
        raise PolicyError(f"{self.policy.name}, at {self._clock.now_s():g} s, {action}: {found}. {advice}")

    def _task_of(self, action: Start | Pause | Migrate) -> TaskRun:
        task = self.tasks.get(action.task)
        if task is None:
            advice = "Name a task of view.waiting, or one that runs."
            self._refuse(action, f"no task {action.task} in this run", advice)
        return task

    def _gpu_of(self, action: Action, index: int) -> GpuState:
        if not 0 <= index < len(self.gpus):
            self._refuse(action, f"no GPU {index}", f"GPUs are 0 to {len(self.gpus) - 1}.")
        return self.gpus[index]

    def _gpus_of(self, action: Start | Migrate) -> tuple[GpuState, ...]:
        indices = (action.gpu, *action.also)
        gpus = tuple([self._gpu_of(action, index) for index in indices])
        if len(set(indices)) < len(indices):
            self._refuse(action, "a GPU twice", "Give a gang different GPUs.")
        return gpus

    def _check_form(self, action: Start | Migrate, task: TaskRun, gpus: int) -> None:
        """Refuse what no state of the cluster would make possible."""
        widths = sorted({task.spec.gpus, *task.spec.widths})
        if gpus not in widths:
            runs = f"runs on {' or '.join(map(str, widths))} GPU{'s' * (widths != [1])}"
            self._refuse(action, f"task {task.id} {runs}, not {gpus}", "Name as many in gpu and also.")
        if action.sharing not in SHARINGS:
            self._refuse(action, f"sharing by {action.sharing!r}", f"Choose one of {', '.join(SHARINGS)}.")
        if action.batch_size is not None and action.batch_size < 1:
            self._refuse(action, f"an inference batch size of {action.batch_size}", "Choose one of at least 1.")
        if not 1 <= action.mps_pct <= 100:
            self._refuse(action, f"an MPS percentage of {action.mps_pct}", "Choose one from 1 to 100.")

    def _check_room(self, action: Start | Migrate, task: TaskRun, gpu: GpuState) -> None:
        """Refuse a task for which a GPU has no place for in addition to its tasks."""
        kind = gpu.device.gpu
        if len(gpu.tasks) >= kind.mps_clients:
            self._refuse(action, f"{gpu} has {len(gpu.tasks)} MPS clients", "It takes no more.")

        # The classes of priority of one way of sharing go together.
        for other in gpu.tasks.values():
            if action.sharing.split("-")[0] != other.sharing.split("-")[0]:
                found = f"task {other.id} on {gpu} shares it by {other.sharing}"
                self._refuse(action, found, "Share as the others do, or choose another GPU.")

        needed_mib = memory_mib(task.workload)
        if needed_mib > gpu.free_mib:
            room = f"{gpu} has {gpu.free_mib:.0f} MiB free of {kind.memory_mib:.0f} MiB"
            found = f"{task.workload} needs {needed_mib:.0f} MiB and {room}"
            self._refuse(action, found, "Wait until memory is free, or choose another GPU.")

    def _stranded(self, reason: str) -> PolicyError:
        unfinished: list[str] = []
        for state in (TaskState.PENDING, TaskState.WAITING, TaskState.LOADING, TaskState.RUNNING):
            ids = [task.id for task in self.tasks.values() if task.state is state]
            if ids:
                unfinished.append(f"{_listed(ids)} {state.value}")
        never = _listed([task.id for task in self.tasks.values() if not task.starts])
        return PolicyError(
            f"{self.policy.name}, at {self._clock.now_s():g} s: {reason}. Unfinished: tasks {'; '.join(unfinished)}. "
            f"Never started: {never}. Start every waiting task, or return Wait(until_s) to be called again."
        )


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(str(task_id) for task_id in ids[:10])
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown or "none"
