"""Event loop: processes arrivals, completions, failures and ticks under a policy, in virtual and in wall time.

Events are processed in the total order (moment, priority, sequence): completions before arrivals before ticks, and of
equal ones the one that was scheduled first. Events within 1e-9 s are at one moment (`running/clock.py`). At each, the
policy gets the event and a view of the cluster, and its actions are executed at once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop
from itertools import islice
from operator import attrgetter
from time import perf_counter
from types import MappingProxyType
from typing import Any

from heshare.devices.device import Device
from heshare.policies.policy import Action, Event, EventKind, Policy, Start, View, Wait
from heshare.running.actions import ActionExecutor
from heshare.running.clock import ARRIVAL, MOMENT_S, TICK, Clock, EventQueue, VirtualClock
from heshare.running.observer import Observer
from heshare.running.state import GpuState, GpuViews, TaskRun, TaskState
from heshare.running.timeline import TimelineRecorder
from heshare.shared.errors import PolicyError
from heshare.world.cluster import Cluster
from heshare.world.task import Task

_ARRIVAL, _id_of = EventKind.ARRIVAL, attrgetter("id")
_MAX_IDLE_TICKS, _MAX_IDLE_WAITS = 1_000, 100_000
_MOST_ACTIONS = 1_000_000
"""Most actions of one decision; a generator that never ends would fill the memory."""


class Loop:
    """The event loop of one run. It can be pickled between two events.

    The policy is already reset. `start_cost_s` is as for `run`; a run that reaches `max_time_s` gives up. The
    `observer` is called with decisions and results before they take effect. `recorder` records the timeline,
    `planning_s` is wall time spent in the policy, s, and `events` counts those that it has received.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        cluster: Cluster,
        policy: Policy,
        devices: Sequence[Device],
        clock: Clock,
        *,
        max_time_s: float = math.inf,
        start_cost_s: float = 0.0,
        observer: Observer | None = None,
    ) -> None:
        self.cluster, self.policy = cluster, policy
        self.tasks = {task.id: TaskRun(task) for task in tasks}
        self.gpus = [GpuState(index, device, clock) for index, device in enumerate(devices)]
        self.recorder = TimelineRecorder(cluster.labels)
        self.planning_s, self.events = 0.0, 0
        self._clock, self._max_time_s = clock, max_time_s
        self._observer = observer or Observer()
        self._queue = EventQueue()
        state = policy.name, self.tasks, self.gpus, clock, self._queue, self.recorder
        self._executor = ActionExecutor(*state, self._observer, self._notify, start_cost_s)
        self._arrivals: list[TaskRun] | None = None
        self._pending = len(self.tasks)
        self._scheduled_ticks = self._idle_ticks = self._idle_waits = 0
        # In virtual time nothing changes between events, so such a policy returns the same for every tick there.
        self._virtual = isinstance(clock, VirtualClock)
        self._skips_ticks = self._virtual and bool(getattr(policy, "ticks_on_change", False))
        self._view: View | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the view, which is made again: its read-only mapping cannot be pickled."""
        return {**self.__dict__, "_view": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state between two events, and the GPUs of each task, which `TaskRun.__getstate__` leaves out."""
        self.__dict__.update(state)
        for task in self.tasks.values():
            task.gpus = tuple([self.gpus[index] for index in task.indices if task.counted])

    @property
    def ended(self) -> int:
        """Number of tasks that have completed or finally failed."""
        return len(self.tasks) - self._executor.unfinished

    def run(self, *, on_end: Callable[[int], object] | None = None) -> float:
        """Run until every task has completed; return the time of the last completion, s.

        `on_end` is called with how many tasks have just ended.

        Raises:
            PolicyError: an impossible action, or tasks that no action will ever start.
            DeviceError: a device refused, failed or makes no progress.
        """
        ended = self.ended
        for _ in self.steps():
            if on_end is not None and self.ended > ended:
                on_end(self.ended - ended)
                ended = self.ended
        return self._clock.now_s()

    def steps(self) -> Iterator[None]:
        """Process the next event at each step until every task has completed; raises as `run`."""
        if self._arrivals is None:
            self._begin()
        executor = self._executor
        queue, clock, observer, max_time_s = self._queue, self._clock, self._observer, self._max_time_s
        heap, waits = queue.heap, type(observer).wait is not Observer.wait
        while executor.unfinished or executor.unreported:
            if not heap:
                raise self._stranded("nothing runs, nothing is still to come, and the policy starts nothing")
            if waits:
                for index in observer.wait(heap[0][0]):
                    executor.schedule_check(self.gpus[index], clock.now_s())
            event = heappop(heap)
            if event[1] and heap and heap[0][0] <= event[0] + MOMENT_S:
                event = queue.first_of_moment(event)
            time_s, _, _, call, arguments = event
            if time_s > max_time_s:
                raise self._stranded(f"the run reached its limit of {max_time_s:g} s")
            call(clock.wait_until(time_s), *arguments)
            yield

    def settle(self) -> None:
        """Let devices and the timeline know of all tasks that had a GPU to themselves."""
        for gpu in self.gpus:
            self._executor.settle(gpu)

    def view(self, now_s: float) -> View:
        """Return the cluster as the policy sees it."""
        if self._view is None:
            remaining = MappingProxyType(self._executor.remaining)
            self._view = View(now_s, self._executor.waiting, remaining, GpuViews(self.gpus), self._pending)
        self._view.now_s, self._view.pending = now_s, self._pending
        return self._view

    def _begin(self) -> None:
        now_s = self._clock.now_s()
        for gpu in self.gpus:
            self._executor.advance(gpu, now_s)
        self._executor.record_changes(now_s)
        self._arrivals = sorted(self.tasks.values(), key=lambda task: (task.spec.arrival_s, task.id), reverse=True)
        self._schedule_arrival()
        if self.policy.tick_s is not None:
            self._schedule_tick(self.policy.tick_s, 1)

    def _notify(self, event: Event) -> bool:
        executor, watched = self._executor, self._executor.watched
        before_s = perf_counter()
        answer = self.policy.decide(event, self.view(event.time_s))
        actions = answer if type(answer) is list and len(answer) <= _MOST_ACTIONS else self._taken(answer)
        self.planning_s += perf_counter() - before_s
        self.events += 1
        if watched:
            self._observer.on_decision(event, actions)
        now_s = event.time_s if self._virtual else self._clock.now_s()
        for action in actions:
            if type(action) is Start:
                executor.start(action, now_s)
            elif isinstance(action, Wait):
                self._wait(action, event.time_s)  # journalling a decision may take longer than its wait
            else:
                executor.execute(action, now_s)
        executor.record_changes(now_s)
        return bool(actions)

    def _taken(self, answer: Any) -> list[Action]:
        at = f"{self.policy.name}, at {self._clock.now_s():g} s"
        if not hasattr(answer, "__iter__"):
            advice = "Return a list of actions, empty for none, or yield them."
            raise PolicyError(f"{at}: decide returned {answer!r}. {advice}")
        if len(actions := list(islice(answer, _MOST_ACTIONS + 1))) > _MOST_ACTIONS:
            raise PolicyError(f"{at}: decide returned more than {_MOST_ACTIONS} actions. End its loop.")
        return actions

    def _schedule_arrival(self) -> None:
        arrivals = self._arrivals
        if arrivals:
            tasks = [arrivals.pop()]
            last_s = tasks[0].spec.arrival_s + MOMENT_S
            while arrivals and arrivals[-1].spec.arrival_s <= last_s:
                tasks.append(arrivals.pop())
            self._queue.schedule(tasks[-1].spec.arrival_s, ARRIVAL, self._arrive, tasks)

    def _arrive(self, now_s: float, tasks: Sequence[TaskRun]) -> None:
        for task in tasks:
            self._executor.add_waiting(task)
        self._pending -= len(tasks)
        self._schedule_arrival()
        self._notify(Event(_ARRIVAL, now_s, tuple(map(_id_of, tasks))))

    def _wait(self, action: Wait, now_s: float) -> None:
        if not action.until_s > now_s:
            self._executor.refuse(action, f"it is {now_s:g} s", "Wait for a time ahead.")
        self._schedule_tick(action.until_s, 0)

    def _schedule_tick(self, time_s: float, number: int) -> None:
        # `number` counts the periodic ticks from 1, and is 0 for the single tick of a `Wait`.
        self._scheduled_ticks += 1
        self._queue.schedule(time_s, TICK, self._tick, number)

    def _tick(self, now_s: float, number: int) -> None:
        self._scheduled_ticks -= 1
        acted = self._notify(Event(EventKind.TICK, now_s))
        runs = self._executor.unfinished > self._pending + len(self._executor.waiting)
        self._idle_waits = 0 if self._pending or runs else self._idle_waits + 1
        if self._idle_waits > _MAX_IDLE_WAITS and self._executor.unfinished:
            raise self._stranded(f"nothing runs, nothing is still to come, and {_MAX_IDLE_WAITS} ticks started nothing")
        if number and self.policy.tick_s is not None:
            self._check_idle(acted, runs)
            # Multiples, not sums, so that the thousandth tick is where it should be; ticks missed live are dropped.
            number = max(number + 1, math.floor(now_s / self.policy.tick_s) + 1)
            number += 0 if acted else self._skipped_ticks(number, self.policy.tick_s)
            self._schedule_tick(number * self.policy.tick_s, number)

    def _skipped_ticks(self, number: int, tick_s: float) -> int:
        if not self._skips_ticks:
            return 0
        heap = self._queue.heap
        while heap and self._executor.is_void(*heap[0][3:]):
            heappop(heap)
        skipped = max(math.floor(heap[0][0] / tick_s) - number, 0) if heap else 0
        self.events += skipped
        return skipped

    def _check_idle(self, acted: bool, runs: bool) -> None:
        # Raise `PolicyError` for a policy that leaves everything idle and only sets clocks, or does nothing.
        idle = self._executor.unfinished and not (self._pending or self._scheduled_ticks or runs)
        self._idle_ticks = self._idle_ticks + 1 if idle else 0
        if idle and (not acted or self._idle_ticks > _MAX_IDLE_TICKS):
            raise self._stranded("nothing runs, nothing is still to come, and a tick started nothing")

    def _stranded(self, reason: str) -> PolicyError:
        ids = {state: [task.id for task in self.tasks.values() if task.state is state] for state in TaskState}
        del ids[TaskState.DONE], ids[TaskState.FAILED]
        lists = "; ".join(f"{_listed(tasks)} {state.value}" for state, tasks in ids.items() if tasks)
        never = _listed([task.id for task in self.tasks.values() if not task.starts])
        return PolicyError(
            f"{self.policy.name}, at {self._clock.now_s():g} s: {reason}. Unfinished: tasks {lists}. "
            f"Never started: {never}. Start every waiting task, or return Wait(until_s) to be called again."
        )


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(str(task_id) for task_id in ids[:10])
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown or "none"
