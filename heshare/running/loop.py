"""The event loop: what happens next, who is told, and what is done about it. The same body in virtual and wall time.

Events are taken from a heap in the total order (time, priority, sequence): completions before arrivals before ticks,
and among equals the one that was planned first. A planned look at a GPU is void once anything on that GPU changed.
Only GPUs that an event touches are advanced, read and planned again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from time import perf_counter
from types import MappingProxyType
from typing import Any

from heshare.devices.device import Device
from heshare.errors import PolicyError
from heshare.policies.policy import Event, Kind, Policy, View
from heshare.running.acting import Hands
from heshare.running.clock import Clock, VirtualClock
from heshare.running.freezing import Arrivals, Freezes
from heshare.running.gangs import keep_step, part_all
from heshare.running.observer import Observer
from heshare.running.state import Job, Slot, State, WaitingRoom
from heshare.running.stranded import stranded, stuck
from heshare.running.timeline import Recorder, Recording
from heshare.running.views import GpuViews
from heshare.world.cluster import Cluster
from heshare.world.task import Task

_LOOK, _ARRIVE, _TICK = (kind.value for kind in (Kind.COMPLETION, Kind.ARRIVAL, Kind.TICK))
_FRUITLESS = 10_000
_IDLE_TICKS = 1_000


class Loop(Freezes):
    """One run in progress; it calls `on_done` with how many tasks have just ended, and `between` after each event.

    Args:
        tasks: the task set, task i with id i.
        cluster: the GPUs.
        policy: who decides; already reset.
        devices: one for each GPU.
        clock: the time that the devices share.
        max_time_s: give up when the run reaches this time, s.
        start_cost_s: time that a task holds its memory and does nothing whenever it starts on a GPU, s.
        observer: hears of decisions and results before they count.
        recorder: keeps what happens; by default the whole timeline.
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
        recorder: Recording | None = None,
    ) -> None:
        self.policy = policy
        self.clock = clock
        self.jobs = [Job(task) for task in tasks]
        self.slots = [Slot(index, device, clock) for index, device in enumerate(devices)]
        self.recorder: Recording = Recorder(cluster.labels) if recorder is None else recorder
        self.waiting = WaitingRoom()
        self.remaining: dict[int, float] = {}
        self.pending = len(tasks)
        self.unfinished = len(tasks)
        self.planning_s = 0.0
        self.events = 0
        self.ticks_planned = 0
        self.observer = observer or Observer()
        self._observed = observer is not None
        self.hands = Hands(self, start_cost_s)
        self.on_done: Callable[[int], object] = lambda done: None
        self.between: Callable[[], None] | None = None
        self._max_time_s = max_time_s
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._touched: list[Slot] = []
        self._arrivals: Arrivals | None = None
        self._fruitless = 0
        self._idle_ticks = 0
        # In virtual time nothing changes between events, so such a policy answers every tick there like the last one.
        self._skips = isinstance(clock, VirtualClock) and bool(getattr(policy, "ticks_on_change", False))
        self.untold: set[int] = set()
        self._views = GpuViews(self.slots)
        self.left = MappingProxyType(self.remaining)

    def run(self) -> float:
        """Go on until every task has completed; returns the time of the last completion, s.

        Raises:
            PolicyError: the policy asked for something impossible, or leaves tasks that nobody will ever start.
            DeviceError: a device refused, failed or makes no progress.
        """
        if self._arrivals is None:
            self._open()
        while self.unfinished or self.untold:
            if not self._heap:
                raise self.stranded("nothing runs, nothing is still to come, and the policy starts nothing")
            for index in self.observer.wait(self._heap[0][0]) if self._observed else ():
                slot = self.slots[index]
                self.plan(self.clock.now_s(), _LOOK, self._look, slot, slot.version)
            time_s, _, _, what, about = heappop(self._heap)
            if time_s > self._max_time_s:
                raise self.stranded(f"the run reached its limit of {self._max_time_s:g} s")
            self.clock.wait_until(time_s)
            what(self.clock.now_s(), *about)
            if self.between is not None:
                self.between()
        return self.clock.now_s()

    def plan(self, time_s: float, priority: int, what: Callable[..., None], *about: Any) -> None:
        """Do `what(now_s, *about)` at `time_s`."""
        self._sequence += 1
        heappush(self._heap, (time_s, priority, self._sequence, what, about))

    def plan_tick(self, time_s: float, number: int = 0) -> None:
        """Tell the policy a tick at `time_s`; `number` counts periodic ticks, 0 is a single one."""
        self.ticks_planned += 1
        self.plan(time_s, _TICK, self._tick, number)

    def touch(self, slot: Slot, now_s: float) -> None:
        """Bring a GPU to the present and note that it changes; a completion found on the way is the next event."""
        if slot.gangs:
            part_all(slot, now_s)
        done = slot.device.advance(now_s)
        slot.changed()
        if not slot.listed:
            slot.listed = True
            self._touched.append(slot)
        if done:
            self._complete(done, now_s)
            self._tell_later(slot, tuple(done), now_s)
        failure = self._fail(slot, now_s) if slot.fallible else None
        if failure is not None:
            self.untold.update(failure.tasks)
            self.plan(now_s, _LOOK, self._tell_failure, failure)

    def finish_now(self, job: Job, now_s: float) -> None:
        """A job was stopped with nothing left to do: it has completed, and the policy is told next."""
        slot = job.slots[0]
        self._ended(job, now_s, ())
        self._tell_later(slot, (job.task.id,), now_s)

    def settle(self, now_s: float) -> None:
        """Read every GPU that changed, write its timeline, and plan when to look at it again."""
        for slot in self._touched:
            if slot.gangs:
                keep_step(self._touched, lambda slot: self.touch(slot, now_s))
                break
        for slot in self._touched:
            slot.listed = False
            slot.version += 1
            if slot.gangs and slot.is_led():
                continue
            seen = slot.glance()
            self.recorder.observe(slot.index, now_s, seen)
            for job in slot.gangs.values():
                if job.led and job.went_s == now_s:
                    job.power_w = seen.power_w
                    self.recorder.alike([other.index for other in job.slots[1:]], now_s, seen)
            if seen.next_s < math.inf:
                self.plan(max(seen.next_s, now_s), _LOOK, self._look, slot, slot.version)
        self._touched.clear()

    def stranded(self, why: str) -> PolicyError:
        """The error for a run that cannot end."""
        return stranded(self.policy.name, self.clock.now_s(), why, self.jobs)

    def _open(self) -> None:
        now_s = self.clock.now_s()
        for slot in self.slots:
            self.touch(slot, now_s)
        self.settle(now_s)
        self._arrivals = Arrivals(self.jobs)
        self._plan_arrival()
        if self.policy.tick_s is not None:
            self.plan_tick(self.policy.tick_s, 1)

    def _plan_arrival(self) -> None:
        """Plan the next tasks to arrive; those that arrive at the same time are one event."""
        jobs = next(self._arrivals, None) if self._arrivals else None
        if jobs:
            self.plan(jobs[0].task.arrival_s, _ARRIVE, self._arrive, jobs)

    def _tell_later(self, slot: Slot, ids: tuple[int, ...], now_s: float) -> None:
        self.untold.update(ids)
        self.plan(now_s, _LOOK, self._tell_now, slot, ids)

    def _tell_now(self, now_s: float, slot: Slot, ids: tuple[int, ...]) -> None:
        self.untold.difference_update(ids)
        self._tell(Event(Kind.COMPLETION, now_s, ids, slot.index))

    def _fail(self, slot: Slot, now_s: float) -> Event | None:
        """Take the tasks that failed on a GPU off its books; what the policy is to be told."""
        if slot.fallible is None:
            return None
        failed, lost = slot.fallible.take_failed(), bool(slot.fallible.lost) and not slot.told_lost
        if not (failed or lost):
            return None
        slot.told_lost = slot.told_lost or lost
        final = [one for one in failed if not self.hands.fail(self.jobs[one.task_id], slot, now_s, one)]
        self.unfinished -= len(final)
        self.on_done(len(final))
        ids, alone = ([one.task_id for one in failed], [one.task_id for one in failed if one.alone])
        return Event(Kind.FAILURE, now_s, tuple(ids), slot.index, tuple(alone), lost)

    def _tell_failure(self, now_s: float, failure: Event) -> None:
        self.untold.difference_update(failure.tasks)
        self._tell(replace(failure, time_s=now_s))

    def _look(self, now_s: float, slot: Slot, version: int) -> None:
        if version != slot.version:
            return
        done = slot.device.advance(now_s)
        slot.changed()
        slot.listed = True
        self._touched.append(slot)
        if done:
            self._complete(done, now_s)
        failure = self._fail(slot, now_s) if slot.fallible else None
        if done:
            self._fruitless = 0
            self._tell(Event(Kind.COMPLETION, now_s, tuple(done), slot.index))
        if failure is not None:
            self._tell(replace(failure, time_s=self.clock.now_s()))
        elif not done:
            self._check_progress(slot, now_s)
            self.settle(now_s)

    def _check_progress(self, slot: Slot, now_s: float) -> None:
        self._fruitless = self._fruitless + 1 if slot.device.next_event_s() <= now_s else 0
        if self._fruitless > _FRUITLESS:
            raise stuck(slot, now_s)

    def _complete(self, done: Sequence[int], now_s: float) -> None:
        for task in done:
            self._ended(self.jobs[task], now_s, self.jobs[task].slots[1:])

    def _ended(self, job: Job, now_s: float, others: Sequence[Slot]) -> None:
        self.hands.finish(job, now_s, others)
        self.unfinished -= 1
        self.on_done(1)

    def _arrive(self, now_s: float, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.state = State.WAITING
            self.hands.wait(job)
        self.pending -= len(jobs)
        self._plan_arrival()
        self._tell(Event(Kind.ARRIVAL, now_s, tuple([job.task.id for job in jobs])))

    def _tick(self, now_s: float, number: int) -> None:
        self.ticks_planned -= 1
        acted = self._tell(Event(Kind.TICK, now_s))
        if number and self.policy.tick_s is not None:
            self._check_idle(acted)
            # Multiples, not sums, so that the thousandth tick is where it should be; ticks missed live are dropped.
            number = max(number + 1, math.floor(now_s / self.policy.tick_s) + 1)
            number += 0 if acted else self._skip(number, self.policy.tick_s)
            self.plan_tick(number * self.policy.tick_s, number)

    def _skip(self, number: int, tick_s: float) -> int:
        """How many ticks to leave out: those before the next event, where the policy has no use for them."""
        if not self._skips or not self._heap:
            return 0
        left_out = max(math.floor(self._heap[0][0] / tick_s) - number, 0)
        self.events += left_out
        return left_out

    def _check_idle(self, acted: bool) -> None:
        """A policy that leaves everything idle gets no second tick, one that only turns clocks a limited number."""
        idle = self.unfinished and not (self.pending or self.ticks_planned or any(slot.jobs for slot in self.slots))
        self._idle_ticks = self._idle_ticks + 1 if idle else 0
        if idle and (not acted or self._idle_ticks > _IDLE_TICKS):
            raise self.stranded("nothing runs, nothing is still to come, and a tick started nothing")

    def _tell(self, event: Event) -> bool:
        """Tell the policy, carry out its answer; returns whether there was one."""
        view = View(event.time_s, self.waiting, self.left, self._views, self.pending)
        before = perf_counter()
        actions = list(self.policy.decide(event, view))
        self.planning_s += perf_counter() - before
        self.events += 1
        if self._observed:
            self.observer.decided(event, actions)
        now_s = self.clock.now_s()
        for action in actions:
            self.hands.act(action, now_s)
        self.settle(now_s)
        return bool(actions)
