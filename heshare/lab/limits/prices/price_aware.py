"""A policy under a price or carbon signal: starts are held back while energy is dear, never for longer than a bound.

`price_aware` wraps any policy. The wrapped policy decides as it does without a signal: where, with which share and at
which clock a task runs. The wrapper decides when: it predicts what the starts of one moment on one GPU would cost now
and later, and holds them back if waiting saves enough. To the policy, a task whose start is held back
seems to load on its GPU. Running tasks are left alone, so that the wrapper works on real GPUs and loses no work.

The bound: between a task's arrival and its start no GPU is held for more than `hold_s` in total. A task is thus delayed
by at most that on its GPU, also by the holds of those before it.

Tasks that raise the power of their GPUs by P above idle for d seconds cost, if they start at t instead of now,

    C(t) = P S(t, t + d),    S(a, b) = integral of the signal from a to b

The GPUs' idle power is paid whether they wait or not. `SavingRule` holds a start until the t within the bound with the
largest

    (C(now) - C(t)) / C(now) - v (t - now)

if that is above zero: the part of its cost that waiting saves, less v, the part that each second of waiting must save.
C is linear between the steps of the signal, so t is a step, a step less d, or the bound.

Sources: the window of least carbon within a deadline for work that cannot be interrupted: Wiesner et al., Let's Wait
Awhile, Middleware 2021, doi:10.1145/3464298.3493399. Savings per waiting time: GAIA, Hanafy et al., Going Green for
Less Green, ASPLOS 2024 (umassos/GAIA). The bound for each GPU (`price_aware`) is ours.
"""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from heshare.lab.limits.held_starts import HoldingPolicy, as_start, placed_workload
from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.policies.policy import (
    Action,
    Event,
    EventKind,
    Migrate,
    Pause,
    Policy,
    Running,
    SetClock,
    Start,
    View,
    Wait,
)
from heshare.prediction.predictor import Predictor
from heshare.running.clock import MOMENT_S
from heshare.shared.errors import InputError, require
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident

SAVING_PER_HOUR = 0.1
"""Part of its cost that each hour of waiting must save for a start to be held."""
HOLD_S = 8 * 3_600.0
"""The bound unless one is given, s."""
LONGEST_HOLD_S = 30 * 86_400.0
"""The longest bound, s."""
LEAST_S = 1.0
"""A start is not held for less, s."""
_UNKNOWN_S = 3_600.0
"""Duration of starts that the predictor does not cover, s."""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Prediction for starts on one GPU, or on those of a gang.

    They raise the power of their GPUs by `power_w`, W; the last of the started tasks ends after `duration_s`, s.
    """

    power_w: float
    duration_s: float


class HoldRule(Protocol):
    """Rule that says until when to hold starts back."""

    def release_s(self, now_s: float, limit_s: float, estimate: StartEstimate) -> float:
        """Return when to start, s: `now_s`, or a later time, at most `limit_s`."""
        ...


@dataclass(frozen=True, slots=True)
class SavingRule:
    """Hold a start for as long as that saves most, if each hour of waiting saves enough of its cost.

    `saving_per_hour` is the part of its cost that each hour of waiting must save, at least 0.

    Example: a batch of an hour, and a price that falls to half after half an hour.

    >>> rule = SavingRule(EnergySignal((0.0, 1800.0), (0.2, 0.1)))
    >>> batch = StartEstimate(power_w=250.0, duration_s=3600.0)
    >>> rule.release_s(0.0, 7200.0, batch), rule.release_s(0.0, 600.0, batch)
    (1800.0, 600.0)
    """

    signal: EnergySignal
    saving_per_hour: float = SAVING_PER_HOUR

    def release_s(self, now_s: float, limit_s: float, estimate: StartEstimate) -> float:
        now_cost = self._cost(now_s, estimate)
        if now_cost <= 0 or limit_s <= now_s:
            return now_s
        ends = self.signal.steps(now_s + estimate.duration_s, limit_s + estimate.duration_s)
        times = {limit_s, *self.signal.steps(now_s, limit_s), *[end_s - estimate.duration_s for end_s in ends]}
        best_s, best = now_s, 0.0
        for time_s in sorted(time_s for time_s in times if now_s < time_s <= limit_s):
            saved = 1.0 - self._cost(time_s, estimate) / now_cost
            gain = saved - self.saving_per_hour * (time_s - now_s) / 3_600.0
            # Rounding must not hold a start: at a constant price nothing is saved.
            if gain > best + 1e-9:
                best_s, best = time_s, gain
        return best_s

    def _cost(self, start_s: float, estimate: StartEstimate) -> float:
        return self.signal.amount(estimate.power_w, start_s, start_s + estimate.duration_s)


@dataclass(frozen=True, slots=True)
class CheapestHourRule:
    """Hold every start until the lowest value of the signal within the bound begins: the trivial baseline."""

    signal: EnergySignal

    def release_s(self, now_s: float, limit_s: float, estimate: StartEstimate) -> float:
        """Return when to start, s, whatever is started."""
        times = [now_s, *self.signal.steps(now_s, limit_s)]
        return min(times, key=lambda time_s: (self.signal.at(time_s), time_s))


def price_aware(
    policy: Policy, signal: EnergySignal | None, hold_s: float = HOLD_S, rule: HoldRule | None = None
) -> Policy:
    """Return the policy under a signal; the policy itself if the signal is None or nothing may be held.

    Args:
        policy: any policy, of plans or online.
        signal: price or carbon over time.
        hold_s: longest time for which a GPU is held between a task's arrival and its start, s.
        rule: when a start is worth holding; `SavingRule` of the signal unless given.

    Raises:
        InputError: a bound below zero or too large.

    Example:
        >>> import heshare as hs
        >>> from heshare.policies.registry import make
        >>> from heshare.lab.limits.prices.signal_cost import run_cost
        >>> evening = EnergySignal((0.0, 7200.0), (0.3, 0.1))
        >>> at_once = hs.run(4, "1xT4,1xA100", "sjf")
        >>> held = hs.run(4, "1xT4,1xA100", price_aware(make("sjf"), evening, hold_s=7200.0))
        >>> [round(run_cost(run, evening).active, 4) for run in (at_once, held)]
        [0.0737, 0.067]
        >>> [round(run.avg_jct_s) for run in (at_once, held)]
        [2246, 9446]
    """
    check_hold(hold_s)
    if signal is None or hold_s == 0:
        return policy
    return PriceAwarePolicy(policy, rule or SavingRule(signal), hold_s)


def check_hold(hold_s: float) -> None:
    """Raise `InputError` unless this is a time from zero to `LONGEST_HOLD_S`."""
    expected = f"a time from 0 to {LONGEST_HOLD_S:g} s"
    require("hold", f"{hold_s} s", 0 <= hold_s <= LONGEST_HOLD_S, expected, "Correct the bound.")


@dataclass(slots=True)
class _GpuHolds:
    """Holds of one GPU: periods that are over, and the one that goes on, if any, from `since_s` to `until_s`."""

    past: list[tuple[float, float]] = field(default_factory=list)
    since_s: float = math.nan
    until_s: float = math.nan

    @property
    def going_on(self) -> bool:
        return not math.isnan(self.until_s)

    def held_since_s(self, arrival_s: float, now_s: float) -> float:
        """Return for how long it was held since a time until now, s."""
        periods = [*self.past, (self.since_s, now_s)] if self.going_on else self.past
        return sum([max(end_s - max(begin_s, arrival_s), 0.0) for begin_s, end_s in periods])

    def end(self, now_s: float) -> None:
        if self.going_on and now_s > self.since_s:
            self.past.append((self.since_s, now_s))
        self.since_s = self.until_s = math.nan


class PriceAwarePolicy(HoldingPolicy):
    def __init__(self, policy: Policy, rule: HoldRule, hold_s: float) -> None:
        super().__init__(policy)
        self._rule, self._hold_s = rule, hold_s
        digest = zlib.crc32(repr((rule, hold_s)).encode())
        self.name = f"{policy.name} held up to {hold_s / 3600:g} h ({digest:08x})"
        self.traits = policy.traits

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        self._predictor = predictor
        self._gpus = [_GpuHolds() for _ in cluster.gpus]
        self._clocks: dict[int, int | None] = {}
        self._sizes: dict[int, int | None] = {}
        super().reset(cluster, predictor, rng)

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Yield the starts whose time has come, and the policy's actions except for the starts that are held back."""
        own = event.kind is EventKind.TICK and self._takes_tick(view.now_s)
        for task_id in event.tasks if event.kind is not EventKind.ARRIVAL else ():
            self._sizes.pop(task_id, None)
        if event.lost or event.drained is not None:
            # The policy plans again, and every waiting task arrives again.
            self._held.clear()
            self._clocks.clear()
            for gpu in self._gpus:
                gpu.end(view.now_s)
        self._forget_gone(view)
        # What is released now seems to load on: a policy is not told twice of what it has started.
        shown = self._held.shown(view, self._clocks)
        news = tuple([task for task in event.tasks if task not in self._held])
        yield from self._released(view)
        if not own and (news or not event.tasks):
            known = event if len(news) == len(event.tasks) else replace(event, tasks=news)
            yield from self._answer(view, list(self._policy.decide(known, shown)))
        yield from self._ticks(view.now_s)

    def _forget_gone(self, view: View) -> None:
        if not self._held:
            return
        waiting = {task.id for task in view.waiting}
        for start in [start for start in self._held if start.task not in waiting]:
            self._held.remove(start.task)
        self._end_empty(view.now_s)

    def _end_empty(self, now_s: float) -> None:
        used = self._held.on_gpus()
        for index, gpu in enumerate(self._gpus):
            if gpu.going_on and index not in used:
                gpu.end(now_s)

    def _released(self, view: View) -> Iterator[Action]:
        """Yield the clocks and starts of GPUs whose hold is over; a gang starts with the last of its GPUs."""
        due = [
            start
            for start in self._held
            if all(not self._gpus[gpu].until_s > view.now_s + MOMENT_S for gpu in (start.gpu, *start.also))
        ]
        for start in due:
            self._held.remove(start.task)
        self._end_empty(view.now_s)
        for start in due:
            yield from self._start(start)
        yield from self._clocks_of_idle()

    def _start(self, start: Start) -> Iterator[Action]:
        for gpu in (start.gpu, *start.also):
            if gpu in self._clocks:
                yield SetClock(gpu, self._clocks.pop(gpu))
        self._sizes[start.task] = start.batch_size
        yield start

    def _clocks_of_idle(self) -> Iterator[SetClock]:
        held = self._held.on_gpus()
        for index in [index for index in self._clocks if index not in held]:
            yield SetClock(index, self._clocks.pop(index))

    def _answer(self, view: View, wanted: Sequence[Action]) -> Iterator[Action]:
        tasks = {task.id: task for task in view.waiting}
        actions = self._without_held(wanted)
        self._end_empty(view.now_s)
        # What is started and taken off again by one answer is not held in between.
        moved = {action.task for action in actions if isinstance(action, Pause | Migrate)}
        starts = [
            action
            for action in actions
            if isinstance(action, Start) and action.task not in moved and self._is_possible(action, tasks)
        ]
        clocks = {action.gpu: action.sm_mhz for action in actions if isinstance(action, SetClock)}
        held_back = self._hold(view, starts, tasks, clocks)
        held = self._held.on_gpus()
        for action in actions:
            if isinstance(action, SetClock) and action.gpu in held and not len(view.gpus[action.gpu].running):
                self._clocks[action.gpu] = action.sm_mhz  # an idle GPU saves power at its own clock
            elif isinstance(action, SetClock):
                self._clocks.pop(action.gpu, None)
                yield action
            elif not isinstance(action, Start):
                yield action
            elif action.task not in held_back:
                yield from self._start(action)
        yield from self._clocks_of_idle()

    def _without_held(self, wanted: Sequence[Action]) -> list[Action]:
        """Return the actions without those that take a held start back; its move is another start of the task."""
        actions: list[Action] = []
        for action in wanted:
            if isinstance(action, Pause | Migrate) and action.task in self._held:
                self._held.remove(action.task)
                if isinstance(action, Migrate):
                    actions.append(as_start(action))
            else:
                actions.append(action)
        return actions

    def _is_possible(self, start: Start, tasks: Mapping[int, Task]) -> bool:
        """Return whether a start names a waiting task and GPUs; the event loop has the message for others."""
        return start.task in tasks and all(0 <= gpu < len(self._gpus) for gpu in (start.gpu, *start.also))

    def _hold(
        self, view: View, starts: Sequence[Start], tasks: Mapping[int, Task], clocks: Mapping[int, int | None]
    ) -> set[int]:
        """Hold starts back that are worth it; return their tasks. Those that share a GPU start together."""
        held_back: set[int] = set()
        earliest_s = view.waiting[0].arrival_s if len(view.waiting) else view.now_s
        for group in _groups(starts):
            gpus = sorted({gpu for start in group for gpu in (start.gpu, *start.also)})
            spent_s = max([self._gpus[gpu].held_since_s(earliest_s, view.now_s) for gpu in gpus])
            limit_s = view.now_s + self._hold_s - spent_s
            going_on = [self._gpus[gpu].until_s for gpu in gpus if self._gpus[gpu].going_on]
            if going_on:
                until_s = min(max(going_on), limit_s)
            else:
                estimate = self._estimate(view, group, tasks, clocks)
                latest = [tasks[start.task].deadline_s - estimate.duration_s for start in group]
                until_s = self._rule.release_s(view.now_s, min(limit_s, *latest), estimate)
            if until_s < view.now_s + LEAST_S:
                continue
            for gpu in gpus:
                holds = self._gpus[gpu]
                holds.since_s = holds.since_s if holds.going_on else view.now_s
                holds.until_s = until_s
            for start in group:
                self._held.add(start, tasks[start.task])
                held_back.add(start.task)
        return held_back

    def _estimate(
        self, view: View, group: Sequence[Start], tasks: Mapping[int, Task], clocks: Mapping[int, int | None]
    ) -> StartEstimate:
        """Return the predicted power and duration of starts, each on its GPUs beside what runs there."""
        power_w = duration_s = 0.0
        gpus = sorted({gpu for start in group for gpu in (start.gpu, *start.also)})
        try:
            for index in gpus:
                gpu, here = view.gpus[index], [start for start in group if index in (start.gpu, *start.also)]
                before = tuple([self._running(gpu.running[task]) for task in gpu.running])
                after = (*before, *[_resident(tasks[start.task], start) for start in here])
                clock = clocks.get(index, self._clocks.get(index, gpu.requested_mhz))
                predicted = self._predictor.co_run([after], gpu.gpu, [clock])
                power_w += float(predicted.power_w[0])
                running_w = self._predictor.co_run([before], gpu.gpu, [clock]).power_w if before else [gpu.gpu.idle_w]
                power_w -= float(running_w[0])
                times_s = predicted.time_s[0, len(before) :].tolist()
                for start, time_s in zip(here, times_s, strict=True):
                    size = 1.0 if start.batch_size is None else start.batch_size / tasks[start.task].workload.batch_size
                    duration_s = max(duration_s, view.remaining[start.task] / size * time_s)
        except InputError:  # a policy that predicts nothing may run what its predictor does not cover
            return StartEstimate(sum([view.gpus[gpu].gpu.tdp_w for gpu in gpus]), _UNKNOWN_S)
        return StartEstimate(max(power_w, 0.0), duration_s)

    def _running(self, running: Running) -> Resident:
        size = self._sizes.get(running.task.id)
        return Resident(placed_workload(running.task, size), running.mps_pct, running.sharing)

    def _ticks(self, now_s: float) -> Iterator[Wait]:
        ends_s = {gpu.until_s for gpu in self._gpus if gpu.going_on and gpu.until_s > now_s + MOMENT_S}
        for until_s in sorted(ends_s.difference(self._own_ticks)):
            self._own_ticks.append(until_s)
            yield Wait(until_s)


def _groups(starts: Sequence[Start]) -> list[list[Start]]:
    groups: list[tuple[set[int], list[Start]]] = []
    for start in starts:
        gpus, together = {start.gpu, *start.also}, [start]
        sharing = [group for group in groups if group[0] & gpus]
        if sharing:
            first = sharing[0]
            for other in sharing[1:]:
                first[0].update(other[0])
                first[1].extend(other[1])
                groups.remove(other)
            first[0].update(gpus)
            first[1].extend(together)
        else:
            groups.append((gpus, together))
    return [group for _, group in groups]


def _resident(task: Task, start: Start) -> Resident:
    return Resident(placed_workload(task, start.batch_size), start.mps_pct, start.sharing)
