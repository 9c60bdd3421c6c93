"""A policy within a power budget: starts are held back and clocks lowered so that the sum of power stays below a limit.

`within_budget` wraps any policy. The wrapped policy decides as it does without a limit. Its starts are held back while
there is no power for them, in the order of its decisions; to it, a task whose start is held back seems to load on its
GPU. Clocks are lowered where that costs least speed, also those of running tasks, and raised again when there is room.
Before an action, power is bounded from above (`power_bounds`); afterwards it is known by a reading, and what the bound
had left unused is given out. A start is released when there is room for what is expected of it, at clocks that the
bound allows, the lowest if need be: a second later its power is known, and the clocks rise.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heshare.lab.limits.held_starts import HoldingPolicy, as_start, placed_workload
from heshare.lab.limits.power_bounds import MARGIN, PowerBounds, Residents, as_residents, idle_w, saturated_w, top_mhz
from heshare.lab.limits.power_budget import EXCESS_W, PowerBudget
from heshare.lab.limits.power_sharing import FLOOR, GpuPower, choose_clocks, expects_room, total_w, with_resident
from heshare.policies.policy import (
    Action,
    Event,
    EventKind,
    GpuView,
    Migrate,
    Pause,
    Policy,
    SetClock,
    Start,
    View,
    Wait,
)
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import PolicyError, require
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident

_LONGEST_PROBE_S = 64.0


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Settings of a policy within a budget; the defaults are for virtual time.

    Attributes:
        margin: part by which power may be above its prediction.
        settle_s: for so long after a change a reading of power does not count, s; 0 where a reading is exact at once.
        probe_s: after so long a change is looked at by its reading, s; twice as long each time nothing is new.
        watch_s: longest time without a look at the readings while tasks run, s.
        may_start: whether anything may be started at present.
        began_s: when the process of a task began, s; inf while its start waits, for memory or for MPS.
        tell: called with a line for the operator when readings are above the limit, and when starts begin or cease to
            be held back.
    """

    margin: float = MARGIN
    settle_s: float = 0.0
    probe_s: float = 1.0
    watch_s: float = math.inf
    may_start: Callable[[], bool] | None = None
    began_s: Callable[[int], float] = lambda task: -math.inf
    tell: Callable[[str], object] | None = None


def within_budget(policy: Policy, budget: Any, settings: BudgetSettings | None = None) -> Policy:
    """Return the policy within a power budget; the policy itself if the budget is None.

    Args:
        policy: any policy, of plans or online.
        budget: a `PowerBudget`, watts, or a CSV file with the columns `time_s`, `limit_w`.
        settings: of the wrapper.

    Raises:
        InputError: a bad budget. Whether a cluster can keep it is checked when a run begins.

    Example:
        >>> import heshare as hs
        >>> from heshare.policies.registry import make
        >>> hs.run(4, "1xT4,1xA100", within_budget(make("sjf"), 200))
        Run(sjf within 200 W, 4 tasks on 1xT4,1xA100, 770 kJ, average JCT 2,317 s, emulated)
    """
    return policy if budget is None else BudgetPolicy(policy, PowerBudget.parse(budget), settings)


class BudgetPolicy(HoldingPolicy):
    def __init__(self, policy: Policy, budget: PowerBudget, settings: BudgetSettings | None = None) -> None:
        super().__init__(policy)
        self.budget, self._settings = budget, settings or BudgetSettings()
        steps = zlib.crc32(repr(budget.to_json()).encode())
        self.name = f"{policy.name} within {budget}" + (f" ({steps:08x})" if len(budget.times_s) > 1 else "")
        self.traits = replace(policy.traits, frequency=True)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Begin a run.

        Raises:
            InputError: the GPUs need more than the limit while they idle, or a GPU can never start anything within it.
        """
        check_cluster(cluster, self.budget)
        self._bounds = PowerBounds(predictor, self._settings.margin)
        self._started: dict[int, Start] = {}
        self._wishes: dict[int, int | None] = {}
        self._states: list[tuple[Residents, int | None] | None] = [None] * len(cluster)
        self._since_s, self._present_w = [0.0] * len(cluster), [math.nan] * len(cluster)
        self._views: list[GpuView | None] = [None] * len(cluster)
        self._asked: dict[int, int | None] = {}
        self._stuck: set[int] = set()
        self._probe_s, self._told = self._settings.probe_s, ""
        super().reset(cluster, predictor, rng)

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Yield those of the policy's actions for which there is power, and the clocks and pauses that make room."""
        own = event.kind is EventKind.TICK and self._takes_tick(view.now_s)
        for task_id in event.tasks if event.kind is not EventKind.ARRIVAL else ():
            self._started.pop(task_id, None)
        if event.lost or event.drained is not None:
            self._held.clear()  # the policy plans again, and every waiting task arrives again
        self._observe(view)
        self._look_for_refusals(view)
        wanted = [] if own else list(self._policy.decide(event, self._held.shown(view, self._wishes)))
        yield from _Answer(self, view, wanted).actions()

    def _observe(self, view: View) -> None:
        settle_s = self._settings.settle_s
        for gpu in view.gpus:
            index = gpu.index
            if gpu is self._views[index] and not settle_s and not math.isnan(self._present_w[index]):
                continue  # nothing has changed there
            self._views[index], residents = gpu, self._residents(gpu)
            if self._states[index] != (residents, gpu.requested_mhz):
                self._states[index], self._since_s[index] = (residents, gpu.requested_mhz), view.now_s
            # A task that loads will draw more; on a real GPU the progress of a command is never known.
            loads = any(gpu.running[task].time_s == math.inf for task in gpu.running)
            since_s = max([self._since_s[index], *map(self._settings.began_s, gpu.running)])
            settled = view.now_s - since_s >= settle_s and (settle_s > 0 or not loads)
            self._present_w[index] = gpu.power_w if settled else math.nan
            if settled and residents:
                self._bounds.learn(gpu.gpu, residents, gpu.requested_mhz, gpu.power_w, gpu.sm_mhz)

    def _look_for_refusals(self, view: View) -> None:
        """Take the clock of a GPU that refused a requested one for its only one."""
        for index, sm_mhz in self._asked.items():
            if view.gpus[index].requested_mhz != sm_mhz:
                self._stuck.add(index)
                self._wishes.pop(index, None)
        self._asked = {}

    def _residents(self, gpu: GpuView) -> Residents:
        running = gpu.running
        return as_residents([self._resident(running[task].task, _start_of(running[task])) for task in running])

    def _resident(self, task: Task, start: Start) -> Resident:
        known = self._started.get(task.id)
        size = start.batch_size if known is None or start.batch_size is not None else known.batch_size
        return Resident(placed_workload(task, size), start.mps_pct, start.sharing)

    def _tell(self, text: str) -> None:
        """Tell the operator something, once as long as it stays true; nothing is true for an empty text."""
        if text and not self._told and self._settings.tell is not None:
            self._settings.tell(text)
        self._told = text


class _Answer:
    """The answer to one event: what the policy wants, what there is power for, and what makes room for it."""

    def __init__(self, owner: BudgetPolicy, view: View, wanted: Sequence[Action]) -> None:
        self._owner, self._view, self._wanted = owner, view, wanted
        self._held, self._bounds, self._settings = owner._held, owner._bounds, owner._settings
        self._limit_w = owner.budget.at(view.now_s)
        self._read_w = sum([gpu.power_w for gpu in view.gpus])
        # Whatever has settled: where readings come late, nothing may add to them before they have fallen.
        self._over = self._settings.settle_s > 0 and self._read_w > self._limit_w + EXCESS_W
        self._gpus = [self._as_it_is(gpu) for gpu in view.gpus]
        self._first: list[Action] = []
        self._placed: list[Action] = []
        self._released: list[tuple[Start, Task]] = []
        self._last: list[Action] = []
        self._paused = self._waits = False
        self._changed = len(self._held) > 0 or any(
            view.gpus[gpu].requested_mhz != wish for gpu, wish in owner._wishes.items()
        )

    def actions(self) -> list[Action]:
        """Return the actions, the ones that save power first."""
        moves = self._take_wishes()
        for index in self._owner._wishes:
            self._set_residents(index, self._gpus[index].residents)
        self._make_room()
        for move in moves:
            self._move(move)
        self._release()
        self._set_idle_clocks()
        if self._over:
            self._lower_by_reading()
        self._tell()
        wishes = self._owner._wishes
        granted = all(self._gpus[index].clock == wish for index, wish in wishes.items())
        granted = granted and all(gpu.level == 0 for gpu in self._gpus)
        clocks = [
            (view.requested_mhz, SetClock(view.index, gpu.clock))
            for view, gpu in zip(self._view.gpus, self._gpus, strict=True)
            if view.requested_mhz != gpu.clock
        ]
        lower = [action for before, action in clocks if before is None or (action.sm_mhz or math.inf) < before]
        higher = [action for _, action in clocks if action not in lower]
        # A real GPU may refuse a clock: what needs lower ones waits until they are set.
        self._waits = bool(lower) and self._settings.settle_s > 0 and bool(higher or self._placed)
        if granted and not self._changed and not self._held and not self._paused and not self._waits:
            return [*self._wanted, *self._ticks(bool(self._wanted))]
        if self._waits:
            higher = []
            self._put_back()
        self._forget_wishes()
        self._owner._asked = {action.gpu: action.sm_mhz for action in (*lower, *higher)}
        acted = bool(self._first or self._placed or clocks)
        return [*self._first, *lower, *self._placed, *higher, *self._last, *self._ticks(acted)]

    def _as_it_is(self, gpu: GpuView) -> GpuPower:
        owner, index = self._owner, gpu.index
        present, present_w = owner._states[index], owner._present_w[index]
        assert present is not None
        known = None if math.isnan(present_w) else present_w
        read_w = gpu.power_w if self._settings.settle_s else 0.0
        # With the clock that it has: `_set_residents` takes over a wish.
        return GpuPower(gpu.gpu, *present, known, present, read_w, fixed=index in owner._stuck)

    def _take_wishes(self) -> list[Migrate]:
        """Sort the policy's actions: clocks are wishes, starts are held; return the moves of running tasks."""
        waiting = {task.id: task for task in self._view.waiting}
        moves: list[Migrate] = []
        for action in self._wanted:
            if isinstance(action, SetClock) and self._is_clock(action):
                self._owner._wishes[action.gpu] = action.sm_mhz
            elif isinstance(action, Start) and action.task in waiting and self._is_place(action):
                self._held.add(action, waiting[action.task])
            elif isinstance(action, Pause | Migrate) and action.task in self._held:
                task = self._held.task(action.task)
                if isinstance(action, Pause):
                    self._held.remove(task.id)
                else:
                    self._held.add(as_start(action), task)
            elif isinstance(action, Migrate) and self._running(action.task) and self._is_place(action):
                moves.append(action)
            else:
                (self._last if isinstance(action, Wait) else self._first).append(action)
                if isinstance(action, Pause):
                    self._leave(action.task)
        return moves

    def _is_clock(self, action: SetClock) -> bool:
        if not 0 <= action.gpu < len(self._gpus) or action.gpu in self._owner._stuck:
            return False
        return action.sm_mhz is None or action.sm_mhz in self._gpus[action.gpu].gpu.clocks_mhz

    def _is_place(self, action: Start | Migrate) -> bool:
        return all(0 <= gpu < len(self._gpus) for gpu in (action.gpu, *action.also))

    def _running(self, task_id: int) -> tuple[int, ...]:
        return tuple([gpu.index for gpu in self._view.gpus if task_id in gpu.running])

    def _leave(self, task_id: int) -> None:
        for index in self._running(task_id):
            running = self._view.gpus[index].running[task_id]
            left = list(self._gpus[index].residents)
            left.remove(self._owner._resident(running.task, _start_of(running)))
            self._set_residents(index, tuple(left))

    def _set_residents(self, index: int, residents: Residents) -> None:
        """Give a GPU other residents; one that idles keeps its clock as it is, unless it is to be the card's own."""
        before, view = self._gpus[index], self._view.gpus[index]
        wish = self._owner._wishes.get(index, view.requested_mhz)
        wish = wish if residents or wish is None else view.requested_mhz
        self._gpus[index] = before.changed(residents, wish)

    def _fits(self, *floors: float) -> bool:
        """Choose clocks above the first of these floors at which there is power; return whether there is one."""
        return any(choose_clocks(self._gpus, self._bounds, self._limit_w, floor) for floor in floors)

    def _make_room(self) -> None:
        if self._fits(FLOOR, 0.0):
            return
        paused: list[tuple[Start, Task]] = []
        for task_id, start in reversed(list(self._owner._started.items())):
            at = self._running(task_id)
            if not at or any(isinstance(action, Pause) and action.task == task_id for action in self._first):
                continue
            paused.insert(0, (start, self._view.gpus[at[0]].running[task_id].task))
            self._first.append(Pause(task_id))
            self._paused = True
            self._leave(task_id)
            if self._fits(0.0):
                break
        for start, _ in paused:
            self._owner._started.pop(start.task)
        self._held.put_first(paused)

    def _move(self, move: Migrate) -> None:
        at = self._running(move.task)
        task = self._view.gpus[at[0]].running[move.task].task
        start = as_start(move)
        self._leave(move.task)
        self._owner._started.pop(move.task, None)
        before = list(self._gpus)
        self._join(start, task)
        if not self._over and self._fits(FLOOR, 0.0):
            self._placed.append(move)
            self._owner._started[move.task] = start
            return
        self._gpus = before
        self._first.append(Pause(move.task))
        self._paused = True
        self._held.put_first([(start, task)])
        self._make_room()

    def _join(self, start: Start, task: Task) -> None:
        for index in (start.gpu, *start.also):
            self._set_residents(index, with_resident(self._gpus[index], self._owner._resident(task, start)))

    def _release(self) -> None:
        may_start = self._settings.may_start
        if self._over or (may_start is not None and not may_start()):
            return
        for start in list(self._held):
            task = self._held.task(start.task)
            alone = not any(gpu.residents for gpu in self._gpus)
            before = list(self._gpus)
            levels = [gpu.level for gpu in before]
            self._join(start, task)
            hopeful = alone or expects_room(self._gpus, self._bounds, self._limit_w)
            if not hopeful or not self._fits(FLOOR, 0.0):
                self._gpus = before
                for gpu, level in zip(before, levels, strict=True):
                    gpu.level = level
                if alone:
                    self._check_progress(start)
                return
            self._held.remove(start.task)
            self._owner._started[start.task] = start
            self._placed.append(start)
            self._released.append((start, task))

    def _put_back(self) -> None:
        self._placed = [action for action in self._placed if not isinstance(action, Start)]
        for start, _ in self._released:
            self._owner._started.pop(start.task)
        self._held.put_first(self._released)

    def _check_progress(self, start: Start) -> None:
        """Raise `PolicyError` if nothing runs, the first held start does not fit, and the limit never rises again."""
        owner, now_s = self._owner, self._view.now_s
        if owner.budget.next_step_s(now_s) < math.inf:
            return
        raise PolicyError(
            f"{owner.name}, at {now_s:g} s: nothing runs, and {start} needs up to {self._least_w(start):.0f} W of all "
            f"GPUs at their lowest clocks where {self._limit_w:g} W are allowed from now on. Raise the limit, or leave "
            "the task out."
        )

    def _least_w(self, start: Start) -> float:
        self._join(start, self._held.task(start.task))
        for gpu in self._gpus:
            gpu.level = len(gpu.levels) - 1
        return total_w(self._gpus, self._bounds)

    def _set_idle_clocks(self) -> None:
        for view, gpu in zip(self._view.gpus, list(self._gpus), strict=True):
            wish = self._owner._wishes.get(view.index, view.requested_mhz)
            if gpu.residents or wish == gpu.clock:
                continue
            self._gpus[view.index] = gpu.changed((), wish)
            if total_w(self._gpus, self._bounds) > self._limit_w:
                self._gpus[view.index] = gpu

    def _lower_by_reading(self) -> None:
        for view, gpu in zip(self._view.gpus, self._gpus, strict=True):
            most_mhz = top_mhz(gpu.gpu, view.requested_mhz) * (self._limit_w / self._read_w if gpu.residents else 1.0)
            allowed = [level for level, clock in enumerate(gpu.levels) if top_mhz(gpu.gpu, clock) <= most_mhz]
            gpu.level = max(gpu.level, allowed[0] if allowed else len(gpu.levels) - 1)

    def _forget_wishes(self) -> None:
        wishes = self._owner._wishes
        for index, gpu in enumerate(self._gpus):
            if gpu.level:
                wishes[index] = gpu.wish
            elif wishes.get(index, gpu.clock) == gpu.clock and not self._waits:
                wishes.pop(index, None)

    def _ticks(self, acted: bool) -> list[Action]:
        """Request the ticks that this wrapper needs: at the next step of the budget, and to look at readings."""
        owner, now_s, settings = self._owner, self._view.now_s, self._settings
        times_s = [owner.budget.next_step_s(now_s)]
        limited = self._waits or bool(self._held) or any(gpu.level for gpu in self._gpus)
        unknown = any(math.isnan(present_w) for present_w in owner._present_w)
        owner._probe_s = settings.probe_s if acted else min(2.0 * owner._probe_s, _LONGEST_PROBE_S)
        if limited and (acted or unknown):
            times_s.append(now_s + max(owner._probe_s, settings.settle_s))
        if any(gpu.residents for gpu in self._gpus) or (self._over and self._held):
            times_s.append(now_s + settings.watch_s)
        # A tick that comes earlier looks at the readings as well, except for a step of the budget.
        next_s = min(owner._own_ticks, default=math.inf)
        step_s, soon_s = times_s[0], min(times_s[1:], default=math.inf)
        new = [step_s] * (step_s < math.inf and step_s not in owner._own_ticks)
        new += [soon_s] * (soon_s < min(next_s, step_s))
        owner._own_ticks += new
        return [Wait(time_s) for time_s in new]

    def _tell(self) -> None:
        """Tell the operator that power was read above the limit, or else that starts are held back."""
        if self._read_w > self._limit_w + EXCESS_W:
            text = (
                f"{self._read_w:.0f} W were read where {self._limit_w:g} W are allowed: clocks are lowered, starts wait"
            )
        else:
            text = f"{len(self._held)} starts wait for power within {self._limit_w:g} W" if self._held else ""
        self._owner._tell(text)


def check_cluster(cluster: Cluster, budget: PowerBudget) -> None:
    """Raise `InputError` for a budget that a cluster can never keep, or within which a GPU can never start anything.

    All GPUs draw idle power at any time. The last limit, which holds without end, must leave room for one GPU that is
    fully busy at its lowest clock beside the others idle, whichever GPU that is.
    """
    idle = [idle_w(gpu) for gpu in cluster.gpus]
    least_w, last_w, all_idle_w = min(budget.limits_w), budget.limits_w[-1], sum(idle)
    action = "Raise the limit, or take fewer GPUs."
    found = f"{least_w:g} W for {cluster}, whose GPUs draw {all_idle_w:.1f} W when all of them idle"
    require("power limit", found, all_idle_w <= least_w, "more than that", action)
    more_w = [saturated_w(gpu, (), _lowest(gpu)) - rest_w for gpu, rest_w in zip(cluster.gpus, idle, strict=True)]
    worst = int(np.argmax(more_w))
    needed_w, gpu = all_idle_w + more_w[worst], cluster.gpus[worst]
    clock = "its own clock" if _lowest(gpu) is None else f"{_lowest(gpu)} MHz"
    found = f"{last_w:g} W for {cluster}, which may draw {needed_w:.1f} W when one {gpu.name} is busy at {clock} and "
    expected = "at least that, so that a task can start on any GPU"
    require("power limit", f"{found}the others idle", needed_w <= last_w, expected, action)


def _lowest(gpu: Gpu) -> int | None:
    return gpu.clocks_mhz[0] if len(gpu.clocks_mhz) > 1 else None


def _start_of(running: Any) -> Start:
    """Return the start of a running task as a view shows it; the view does not have its inference batch size."""
    return Start(running.task.id, running.gpus[0], running.mps_pct, None, running.gpus[1:], running.sharing)
