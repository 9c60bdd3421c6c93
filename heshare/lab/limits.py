"""Limit on the total power of the GPUs, enforced by a wrapper around any policy: lower clocks, then delayed starts."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from heshare.devices.board_power import idle_power_w, switching, voltage
from heshare.devices.constants import default
from heshare.devices.iteration_time import iteration_of
from heshare.policies.policy import (
    Action,
    Event,
    EventKind,
    GpuView,
    Migrate,
    Pause,
    Policy,
    Running,
    SetClock,
    Start,
    View,
    Wait,
)
from heshare.policies.policy_around import PolicyAround
from heshare.prediction.predictor import Predictor
from heshare.running.clock import MOMENT_S
from heshare.shared.errors import InputError, PolicyError, require
from heshare.shared.inputs.bounds import MOST_S
from heshare.shared.inputs.csv_table import read_table
from heshare.world import catalogue
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import ENGINES, PRECISIONS, SHARINGS, Resident, Workload

Clock = int | None
"""A requested SM clock, MHz; None is the card's default."""
Residents = tuple[Resident, ...]
"""What runs on a GPU, in an order that does not depend on the order of the starts."""

MOST_W = 1e9
"""Largest limit, W: more than any power plant has; no limit is written as None."""
EXCESS_W = 1e-6
"""Power above a limit that is rounding, W: powers are sums of hundreds of values."""
MARGIN = 0.6
"""Part by which power may be above its prediction.

Measured: of 18,000 random sets of 1 to 5 residents at random clocks of T4, V100 and A100 the emulated GPUs drew at most
1.56 times what the shipped predictor says, 99 % of them at most 1.41. Of cards that it was not trained on they drew up
to 2.4 times as much (H100, H200); there the prediction is no bound. A wide margin costs a second: power is then read.
"""
GROWTH = 2.5
"""Largest exponent with which the dynamic power of several residents grows with the clock, in addition to V(f)^2.

Of one resident it is 1. Of several it may be more, since they share the SMs in other parts at another clock. Measured
on 120,000 random sets of 1 to 7 residents at two clocks of T4, V100, A100, H100 and six others: at most 2.4.
"""
FRACTIONS = tuple([step / 100 for step in range(100, -1, -1)])
"""The common fractions of the top clocks among which a limit chooses; at 0 each GPU has its lowest clock."""
LEAST_FRACTION = 0.4
"""The lowest fraction of the top clock to which GPUs are slowed down for another start.

Down to about three quarters of the top clock the voltage falls and the same work costs less energy. Below that a lower
clock saves little, but a task that waits wastes its idle GPU.
"""


@dataclass(frozen=True, slots=True)
class PowerLimit:
    """Limit on the sum of the board power of all GPUs, idle ones included: constant, or in steps over time.

    Attributes:
        times_s: when each step begins, s after the start of the run, ascending, the first 0, shape (m,).
        limits_w: the limit of each step, W; the last one has no end, shape (m,).

    Raises:
        InputError: no step, times that do not ascend from 0, or a limit that is not a number above zero.

    Example:
        >>> limit = PowerLimit((0.0, 3600.0), (1200.0, 800.0))
        >>> limit.at(10.0), limit.at(3600.0), limit.next_step_s(10.0)
        (1200.0, 800.0, 3600.0)
    """

    times_s: tuple[float, ...]
    limits_w: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = f"{len(self.times_s)} times and {len(self.limits_w)} limits"
        require("power limit", sizes, len(self.times_s) == len(self.limits_w) > 0, "a limit for each time")

        for limit_w in self.limits_w:
            good = _is_number(limit_w) and 0 < limit_w <= MOST_W
            expected = f"a number above 0 and at most {MOST_W:g}"
            require("power limit", f"{limit_w!r} W"[:60], good, expected, "Leave the limit out for none.")

        first = self.times_s[0]
        good = _is_number(first) and first == 0
        require("time_s", f"a first step at {first!r}", good, "a first step at 0 s", "Give the limit from 0 s on.")
        for before_s, time_s in zip(self.times_s, self.times_s[1:], strict=False):
            good = _is_number(time_s) and before_s < time_s <= MOST_S
            found = f"{time_s!r} after {before_s!r}"
            require("time_s", found, good, "times that ascend, s", "Sort the steps by time.")

    @classmethod
    def parse(cls, source: Any) -> "PowerLimit":
        """Return the limit given as watts, a CSV file, a list of [time_s, limit_w], or a `PowerLimit`.

        The file has the columns `time_s`, from 0 on, ascending, and `limit_w`. Text that is a number is watts.

        Raises:
            InputError: another type, no such file, a bad file or a bad limit.
        """
        if isinstance(source, PowerLimit):
            return source
        if isinstance(source, list | tuple):
            return cls.of_json(source)
        if _is_number(source):
            return cls((0.0,), (float(source),))

        expected = "watts, or a CSV file with the columns time_s, limit_w"
        action = "Write a limit such as 1200, or the path of a file."
        require("power limit", repr(source)[:80], isinstance(source, str | Path), expected, action)
        try:
            # Python reads 9_00 as 900; in a limit it is a typographical error.
            limit_w = float(str(source).replace("_", "?"))
        except ValueError:
            found = f"{str(source)!r}, which is no number and no file"
            require("power limit", found, Path(source).is_file(), expected, action)
            return _read_limit(Path(source))
        return cls((0.0,), (limit_w,))

    def __str__(self) -> str:
        least_w, most_w = min(self.limits_w), max(self.limits_w)
        if len(self.times_s) == 1:
            return f"{least_w:g} W"
        return f"{least_w:g} to {most_w:g} W in {len(self.times_s)} steps"

    def at(self, time_s: float) -> float:
        """Return the limit at a time, W; within `MOMENT_S` of a step the step has begun."""
        return self.limits_w[max(bisect_right(self.times_s, time_s + MOMENT_S) - 1, 0)]

    def next_step_s(self, time_s: float) -> float:
        """Return when the next step after a time begins, s; `inf` after the last one."""
        place = bisect_right(self.times_s, time_s + MOMENT_S)
        return self.times_s[place] if place < len(self.times_s) else math.inf

    def later(self, elapsed_s: float) -> "PowerLimit":
        """Return the limit with times relative to `elapsed_s` after the start of the run."""
        if elapsed_s <= 0:
            return self
        steps = [[0.0, self.at(elapsed_s)]]
        steps += [[time_s - elapsed_s, limit_w] for time_s, limit_w in self.to_json() if time_s > elapsed_s]
        return PowerLimit.of_json(steps)

    def to_json(self) -> list[list[float]]:
        """Return [time_s, limit_w] of each step, for `of_json`."""
        return [[time_s, limit_w] for time_s, limit_w in zip(self.times_s, self.limits_w, strict=True)]

    @classmethod
    def of_json(cls, steps: Sequence[Sequence[float]]) -> "PowerLimit":
        """Return the limit with these steps, [time_s, limit_w] each, or an `InputError`."""
        good = all(isinstance(step, list | tuple) and len(step) == 2 for step in steps)
        require("power limit", repr(steps)[:80], good, "[time_s, limit_w] of each step", "Write [[0, 1200]], or 1200.")
        return cls(tuple([time_s for time_s, _ in steps]), tuple([limit_w for _, limit_w in steps]))


LimitSource = PowerLimit | float | str | Path | Sequence[Sequence[float]]
"""What `PowerLimit.parse` reads: a limit, watts as a number or text, the path of a CSV file, a list of steps."""


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _read_limit(path: Path) -> PowerLimit:
    times_s: list[float] = []
    limits_w: list[float] = []
    for row in read_table(path, ("time_s", "limit_w"), ()):
        time_s = row.number_of("time_s", most=MOST_S)
        if times_s and time_s <= times_s[-1]:
            raise row.error("time_s", "not ascending", f"a time above {times_s[-1]:g}", "Sort the rows by time.")
        if not times_s and time_s > 0:
            raise row.error("time_s", "a late start", "0 in the first row", "Give the limit from 0 s on.")
        times_s.append(time_s)
        limits_w.append(row.number_of("limit_w", above=True, most=MOST_W))
    if not times_s:
        raise InputError("no row", "at least one row below the header", "Add a limit from 0 s on.", file=path)
    return PowerLimit(tuple(times_s), tuple(limits_w))


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Settings of a policy within a limit; the defaults are for virtual time.

    Attributes:
        margin: largest excess of power over its prediction, as a part of it.
        settle_s: time after a change during which readings of power are ignored, s; 0 if readings are exact.
        probe_s: time from a change to its first reading, s.
        watch_s: longest time between readings while tasks run, s.
        began_s: when the process of a task began, s; inf while its start waits, for memory or for MPS.
        tell: called with a line for the operator when readings are above the limit, and when starts begin to be held.
    """

    margin: float = MARGIN
    settle_s: float = 0.0
    probe_s: float = 1.0
    watch_s: float = math.inf
    began_s: Callable[[int], float] = lambda task: -math.inf
    tell: Callable[[str], object] = lambda text: None


def within_limit(policy: Policy, limit: LimitSource | None, settings: LimitSettings | None = None) -> Policy:
    """Return a policy that keeps the sum of power below a limit; the policy itself if the limit is None.

    Args:
        policy: any policy, of plans or online.
        limit: what `PowerLimit.parse` reads, None for no limit.
        settings: of the wrapper.

    Raises:
        InputError: a bad limit. Whether a cluster can keep it is checked when a run begins.

    Example:
        >>> import heshare as hs
        >>> from heshare.policies.registry import make
        >>> hs.run(4, "1xT4,1xA100", within_limit(make("sjf"), 200))
        Run(sjf within 200 W, 4 tasks on 1xT4,1xA100, 855 kJ, average JCT 2,634 s, emulated)
    """
    return policy if limit is None else PolicyWithinLimit(policy, PowerLimit.parse(limit), settings)


def check_cluster(cluster: Cluster, limit: PowerLimit) -> None:
    """Raise `InputError` for a limit that a cluster can never meet, or within which a GPU can never start anything.

    All GPUs draw idle power at any time. The last limit must allow any one GPU to be fully busy at its lowest clock
    while the others are idle.
    """
    all_idle_w = sum([_idle_w(gpu) for gpu in cluster.gpus])
    least_w, last_w = min(limit.limits_w), limit.limits_w[-1]
    action = "Raise the limit, or take fewer GPUs."
    found = f"{least_w:g} W for {cluster}, whose GPUs draw {all_idle_w:.1f} W when all of them idle"
    require("power limit", found, all_idle_w <= least_w, "more than that", action)

    more_w = [_busy_w(gpu, (), _lowest(gpu)) - _idle_w(gpu) for gpu in cluster.gpus]
    worst = int(np.argmax(more_w))
    gpu, needed_w = cluster.gpus[worst], all_idle_w + more_w[worst]
    clock = "its default clock" if _lowest(gpu) is None else f"{_lowest(gpu)} MHz"
    busy = f"one {gpu.name} is busy at {clock} and the others idle"
    found = f"{last_w:g} W for {cluster}, which may draw {needed_w:.1f} W when {busy}"
    require("power limit", found, needed_w <= last_w, "at least that, so that a task can start on any GPU", action)


@dataclass(slots=True)
class _GpuState:
    """State of a GPU.

    `clock` is the requested clock, `policy_clock` the one that the policy requested last. `settled` is whether its
    power is that of its running tasks. `refuses` is whether a clock was refused; its clock then remains unchanged.
    `most_mhz` is the highest clock that late readings allow.
    """

    gpu: Gpu
    view: GpuView
    residents: Residents
    clock: Clock
    policy_clock: Clock
    since_s: float
    settled: bool = False
    refuses: bool = False
    most_mhz: float = math.inf


@dataclass(slots=True)
class _Decision:
    """The decision at one event: the residents and the clock of each GPU, and the actions.

    `stops` are actions that need no more power; `starts` are the released ones of the held starts.
    """

    residents: list[Residents]
    clocks: list[Clock] = field(default_factory=list)
    stops: list[Action] = field(default_factory=list)
    starts: list[tuple[Start, Task]] = field(default_factory=list)


class PolicyWithinLimit(PolicyAround):
    """A policy within a limit; made by `within_limit`."""

    # The wrapped policy decides as without a limit. Its actions are executed as far as power allows:
    #
    # 1. The clocks that it sets are stored as its requests. A start is held until power allows it; held starts are
    #    released in order. The policy sees a task whose start is held as one that loads on its GPU.
    # 2. At each event the power of each GPU is bounded from above: by a reading, if the same tasks were read at this
    #    clock, else by a prediction with a margin and by the highest power of the card (`_PowerBounds`).
    # 3. If the sum of the bounds at the requested clocks is above the limit, no busy GPU may exceed a common fraction
    #    of its top clock: the highest fraction at which the sum is at most the limit.
    # 4. A start is released if there is such a fraction with its task running, too, and if the sum predicted at
    #    `LEAST_FRACTION` is at most the limit. Where nothing runs, the fraction alone counts.
    # 5. If running tasks may draw more than the limit at their lowest clocks, those that started last are paused, and
    #    their starts are held before all others.
    # 6. A second after a change the power is known by a reading, which is mostly below its bound: clocks rise again.
    #
    # On real GPUs readings are late, and clocks may be refused. A reading counts once its GPU has been unchanged for
    # `settle_s`. Starts and rising clocks wait until lower clocks are set. While the sum of the readings is above the
    # limit, nothing starts, no clock rises, and the clocks of busy GPUs fall in proportion to the excess. They rise
    # once a reading counts. A refused clock is not requested again.

    def __init__(self, policy: Policy, limit: PowerLimit, settings: LimitSettings | None = None) -> None:
        super().__init__(policy)
        self.limit = limit
        self.name = f"{policy.name} within {limit}"
        self.traits = replace(policy.traits, frequency=True)
        self.ticks_on_change = policy.ticks_on_change
        self._settings = settings or LimitSettings()
        # In virtual time a reading is exact at once, and no clock is refused.
        self._late = self._settings.settle_s > 0

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Begin a run, or raise the `InputError` of `check_cluster`."""
        check_cluster(cluster, self.limit)
        super().reset(cluster, predictor, rng)
        self._bounds = _PowerBounds(predictor)
        self._gpus: list[_GpuState] = []
        self._held: dict[int, tuple[Start, Task]] = {}
        # How running tasks were started, the newest last.
        self._started: dict[int, Start] = {}
        self._asked: dict[int, Clock] = {}
        self._ticks: set[float] = set()
        self._told = ""

    def decide(self, event: Event, view: View) -> list[Action]:
        """Return the actions of the policy that the limit allows, and the clocks and pauses that it needs."""
        self._forget_ended(event)
        self._observe(view)
        was_free = self._is_free([gpu.clock for gpu in self._gpus])
        wanted = self._wanted(event, view, was_free)

        limit_w = self.limit.at(view.now_s)
        over = self._look_for_excess(view, limit_w)
        decision = _Decision([gpu.residents for gpu in self._gpus])
        self._take(wanted, view, decision)
        paused = self._make_room(decision, limit_w)
        if not over:
            self._release(decision, limit_w, view.now_s)
        lower, higher = self._clock_changes(decision)
        self._tell(over, view, limit_w)

        # A limit that is never reached does not change the actions or their order.
        stays_free = self._is_free(decision.clocks)
        free = was_free and not paused and stays_free
        starts = [start for start, _ in decision.starts]
        actions = wanted if free else [*decision.stops, *lower, *starts, *higher]
        self._asked = {action.gpu: action.sm_mhz for action in (*lower, *higher)}
        self._started |= {start.task: start for start in starts}
        acted = len(actions) > 0
        return [*actions, *self._new_ticks(view.now_s, decision, acted=acted, over=over, free=stays_free)]

    def _is_free(self, clocks: Sequence[Clock]) -> bool:
        """Return whether no start is held and these clocks are the policy's."""
        return not self._held and all(gpu.policy_clock == clock for gpu, clock in zip(self._gpus, clocks, strict=True))

    # State of the GPUs

    def _forget_ended(self, event: Event) -> None:
        if event.kind in (EventKind.COMPLETION, EventKind.FAILURE):
            for task_id in event.tasks:
                self._started.pop(task_id, None)
                self._held.pop(task_id, None)
        if event.lost or event.drained is not None:
            self._held.clear()  # the policy plans again, and every waiting task arrives again

    def _observe(self, view: View) -> None:
        """Update the running tasks, the clock and the settled power of each GPU."""
        if not self._gpus:
            for gpu in view.gpus:
                self._gpus.append(_GpuState(gpu.gpu, gpu, (), gpu.requested_mhz, gpu.requested_mhz, view.now_s))

        for state, gpu in zip(self._gpus, view.gpus, strict=True):
            # The view of a GPU is the same object while nothing changes there.
            if gpu is state.view and state.settled and not self._late:
                continue

            residents = _as_residents([self._resident_of(gpu.running[task_id]) for task_id in gpu.running])
            if (state.residents, state.clock) != (residents, gpu.requested_mhz):
                state.since_s = view.now_s
            state.view, state.residents, state.clock = gpu, residents, gpu.requested_mhz
            if state.clock != self._asked.get(gpu.index, state.clock):
                state.refuses = True
            if state.refuses:
                state.policy_clock = state.clock

            state.settled = self._is_settled(state, view.now_s)
            if state.settled and not math.isnan(gpu.power_w):
                self._bounds.learn(gpu.index, residents, state.clock, gpu.power_w, _reached_mhz(gpu))
        self._asked = {}

    def _is_settled(self, state: _GpuState, now_s: float) -> bool:
        running = state.view.running
        if not self._late:
            # A task that loads will draw more.
            return all(running[task_id].time_s < math.inf for task_id in running)
        since_s = max([state.since_s, *map(self._settings.began_s, running)])
        return now_s - since_s >= self._settings.settle_s

    def _resident_of(self, running: Running) -> Resident:
        # A view does not have the inference batch size of a start.
        start = self._started.get(running.task.id)
        size = None if start is None else start.batch_size
        return Resident(_placed(running.task, size), running.mps_pct, running.sharing)

    def _look_for_excess(self, view: View, limit_w: float) -> bool:
        """Return whether late readings are above the limit, and store which clocks may then not rise or must fall."""
        read_w = _read_w(view)
        over = self._late and read_w > limit_w + EXCESS_W
        for gpu in self._gpus:
            present_mhz = _mhz(gpu.gpu, gpu.clock)
            if over:
                gpu.most_mhz = present_mhz * (limit_w / read_w if gpu.residents else 1.0)
            elif self._late and not gpu.settled and gpu.clock != gpu.policy_clock:
                # A clock lowered after a reading would rise again by the prediction.
                gpu.most_mhz = present_mhz
            else:
                gpu.most_mhz = math.inf
        return over

    # Actions of the wrapped policy

    def _wanted(self, event: Event, view: View, free: bool) -> list[Action]:
        """Return the policy's actions; no clock is set on a GPU that refused one."""
        if event.kind is EventKind.TICK and self._takes_tick(view.now_s):
            return []
        actions = self._policy.decide(event, view if free else self._shown(view))
        refusing = {gpu.view.index for gpu in self._gpus if gpu.refuses}
        return [action for action in actions if not (isinstance(action, SetClock) and action.gpu in refusing)]

    def _shown(self, view: View) -> View:
        """Return the view of a policy whose starts are held and whose clocks may be lower than requested.

        Held tasks are shown on their GPUs, take memory there and load.
        """
        gpus: list[GpuView] = []
        for state in self._gpus:
            gpu = state.view
            shown = {task_id: gpu.running[task_id] for task_id in gpu.running}
            free_mib = gpu.free_mib
            for start, task in self._held.values():
                on = (start.gpu, *start.also)
                if gpu.index in on:
                    workload = _placed(task, start.batch_size)
                    left = view.remaining.get(task.id, task.iterations) * task.workload.batch_size / workload.batch_size
                    shown[task.id] = Running(task, start.mps_pct, math.inf, left, start.sharing, on)
                    free_mib -= catalogue.memory_mib(workload)
            gpus.append(replace(gpu, running=shown, requested_mhz=state.policy_clock, free_mib=free_mib))
        waiting = tuple([task for task in view.waiting if task.id not in self._held])
        return replace(view, waiting=waiting, gpus=gpus)

    def _take(self, wanted: Sequence[Action], view: View, decision: _Decision) -> None:
        """Store clocks as requests, hold starts, and pass all other actions on."""
        waiting = {task.id: task for task in view.waiting}
        moved: list[int] = []
        for action in wanted:
            if isinstance(action, SetClock) and self._is_possible(action):
                self._gpus[action.gpu].policy_clock = action.sm_mhz

            elif isinstance(action, Start) and action.task in waiting and self._is_possible(action):
                self._held[action.task] = action, waiting[action.task]

            elif isinstance(action, Pause) and action.task in self._held:
                del self._held[action.task]

            elif isinstance(action, Migrate) and action.task in self._held and self._is_possible(action):
                self._held[action.task] = _as_start(action), self._held[action.task][1]

            elif isinstance(action, Migrate) and self._at(action.task) and self._is_possible(action):
                # Stopped here, it starts there as soon as power allows.
                self._held[action.task] = _as_start(action), self._leave(action.task, decision)
                decision.stops.append(Pause(action.task))
                moved.append(action.task)

            else:
                if isinstance(action, Pause) and action.task not in waiting and self._at(action.task):
                    waiting[action.task] = self._leave(action.task, decision)
                decision.stops.append(action)
        self._held = {task_id: self._held[task_id] for task_id in moved if task_id in self._held} | self._held

    def _is_possible(self, action: SetClock | Start | Migrate) -> bool:
        """Return whether the GPUs and clocks of an action exist; the event loop refuses others."""
        gpus = (action.gpu,) if isinstance(action, SetClock) else (action.gpu, *action.also)
        if not all(0 <= gpu < len(self._gpus) for gpu in gpus):
            return False
        if isinstance(action, SetClock):
            return action.sm_mhz is None or action.sm_mhz in self._gpus[action.gpu].gpu.clocks_mhz
        return 1 <= action.mps_pct <= 100 and action.sharing in SHARINGS

    def _at(self, task_id: int) -> list[int]:
        """Return the GPUs on which a task runs."""
        return [gpu.view.index for gpu in self._gpus if task_id in gpu.view.running]

    def _leave(self, task_id: int, decision: _Decision) -> Task:
        """Remove a running task from its GPUs and return it."""
        for index in self._at(task_id):
            running = self._gpus[index].view.running[task_id]
            left = list(decision.residents[index])
            left.remove(self._resident_of(running))
            decision.residents[index] = tuple(left)
        self._started.pop(task_id, None)
        return running.task

    # What the limit allows

    def _make_room(self, decision: _Decision, limit_w: float) -> bool:
        """Choose clocks for what runs; pause the newest tasks while no clocks meet the limit.

        Returns whether any was paused.
        """
        paused = False
        clocks = self._clocks_for(decision.residents, limit_w)
        for task_id, start in reversed(list(self._started.items())):
            if clocks is not None:
                break
            if self._at(task_id):
                self._held = {task_id: (start, self._leave(task_id, decision))} | self._held
                decision.stops.append(Pause(task_id))
                paused = True
                clocks = self._clocks_for(decision.residents, limit_w)
        decision.clocks = clocks or self._clocks_at(decision.residents, FRACTIONS[-1])
        return paused

    def _release(self, decision: _Decision, limit_w: float, now_s: float) -> None:
        """Release held starts in order, while clocks exist that meet the limit."""
        for start, task in list(self._held.values()):
            joined = list(decision.residents)
            for index in (start.gpu, *start.also):
                joined[index] = _as_residents([*joined[index], _resident(task, start)])

            # Where nothing runs, waiting would never free power.
            nothing_runs = not any(decision.residents)
            clocks = self._clocks_for(joined, limit_w)
            if clocks is None or not (nothing_runs or self._least_w(joined) <= limit_w):
                if nothing_runs and all(gpu.settled for gpu in self._gpus):
                    self._check_progress(start, joined, limit_w, now_s)
                return

            del self._held[start.task]
            decision.residents, decision.clocks = joined, clocks
            decision.starts.append((start, task))

    def _least_w(self, residents: Sequence[Residents]) -> float:
        return self._total_w(residents, self._clocks_at(residents, LEAST_FRACTION), margin=0.0)

    def _check_progress(self, start: Start, joined: Sequence[Residents], limit_w: float, now_s: float) -> None:
        """Raise `PolicyError` for the first held start if it does not fit alone, and the limit never rises again."""
        if self.limit.next_step_s(now_s) < math.inf:
            return
        least_w = self._total_w(joined, self._clocks_at(joined, FRACTIONS[-1]))
        raise PolicyError(
            f"{self.name}, at {now_s:g} s: nothing runs, and {start} needs up to {least_w:.0f} W of all GPUs at their "
            f"lowest clocks where {limit_w:g} W are allowed from now on. Raise the limit, or leave the task out."
        )

    def _clocks_for(self, residents: Sequence[Residents], limit_w: float) -> list[Clock] | None:
        """Return the clocks at the highest common fraction that meets the limit; None if none does."""

        def fits(fraction: float) -> bool:
            return self._total_w(residents, self._clocks_at(residents, fraction)) <= limit_w

        # If the requested clocks meet the limit, no others are predicted.
        requested = self._clocks_at(residents, FRACTIONS[0])
        if self._total_w(residents, requested) <= limit_w:
            return requested

        place = bisect_left(FRACTIONS, True, key=fits)
        return self._clocks_at(residents, FRACTIONS[place]) if place < len(FRACTIONS) else None

    def _clocks_at(self, residents: Sequence[Residents], fraction: float) -> list[Clock]:
        """Return the requested clocks, those of busy GPUs at most at a fraction of the top clock."""
        clocks: list[Clock] = []
        for state, present in zip(self._gpus, residents, strict=True):
            grid = state.gpu.clocks_mhz
            most_mhz = min(state.most_mhz, fraction * state.gpu.max_mhz if present else math.inf)
            if state.refuses or len(grid) == 1 or _mhz(state.gpu, state.policy_clock) <= most_mhz:
                clocks.append(state.policy_clock)
            else:
                clocks.append(grid[max(bisect_right(grid, most_mhz) - 1, 0)])
        return clocks

    def _total_w(self, residents: Sequence[Residents], clocks: Sequence[Clock], margin: float | None = None) -> float:
        """Return an upper bound of the sum of power with these residents at these clocks, W.

        `margin` is that of predictions, by default the one of the settings; with 0 it is the expected power.
        """
        margin = self._settings.margin if margin is None else margin
        total_w = 0.0
        for state, present, clock in zip(self._gpus, residents, clocks, strict=True):
            bound_w = self._bounds.bound_w(state.view.index, state.gpu, present, clock, margin)
            # Where a late reading is above its bound, more tasks at no lower clock do not draw less.
            no_lower = _mhz(state.gpu, clock) >= _mhz(state.gpu, state.clock)
            if self._late and no_lower and len(present) >= len(state.residents):
                bound_w = max(bound_w, state.view.power_w)
            total_w += bound_w
        return total_w

    # Actions

    def _clock_changes(self, decision: _Decision) -> tuple[list[SetClock], list[SetClock]]:
        """Return the clocks that fall and those that rise."""
        lower: list[SetClock] = []
        higher: list[SetClock] = []
        for state, clock in zip(self._gpus, decision.clocks, strict=True):
            falls = state.clock is None or (clock is not None and clock < state.clock)
            if clock != state.clock:
                (lower if falls else higher).append(SetClock(state.view.index, clock))

        # A real GPU may refuse a clock: starts that need lower ones wait until they are set.
        if self._late and lower:
            for action in higher:
                decision.clocks[action.gpu] = self._gpus[action.gpu].clock
            higher = []
            self._held = {task.id: (start, task) for start, task in decision.starts} | self._held
            decision.starts = []
        return lower, higher

    def _takes_tick(self, now_s: float) -> bool:
        """Return whether a tick was requested by this wrapper and is hidden from the policy."""
        first_s = min(self._ticks, default=math.inf)
        due = first_s <= now_s + MOMENT_S
        if due:
            self._ticks.remove(first_s)
        return due

    def _new_ticks(self, now_s: float, decision: _Decision, *, acted: bool, over: bool, free: bool) -> list[Wait]:
        """Request ticks at the next step of the limit and for readings."""
        settings = self._settings
        look_s = math.inf
        settled = all(gpu.settled for gpu in self._gpus)
        if not free and (acted or not settled):
            look_s = now_s + max(settings.probe_s, settings.settle_s)
        if any(decision.residents) or (over and self._held):
            look_s = min(look_s, now_s + settings.watch_s)
        # Power is read at every tick.
        if look_s >= min(self._ticks, default=math.inf):
            look_s = math.inf

        new = {look_s, self.limit.next_step_s(now_s)} - self._ticks - {math.inf}
        self._ticks |= new
        return [Wait(time_s) for time_s in sorted(new)]

    def _tell(self, over: bool, view: View, limit_w: float) -> None:
        """Report power read above the limit, or held starts, once for each period."""
        kind = "over" if over else "held" if self._held else ""
        if kind == self._told:
            return
        self._told = kind
        if over:
            read = f"{_read_w(view):.0f} W were read where {limit_w:g} W are allowed"
            self._settings.tell(f"{read}: clocks are lowered, starts wait")
        elif self._held:
            self._settings.tell(f"{len(self._held)} starts wait for power within {limit_w:g} W")


def _read_w(view: View) -> float:
    """Return the sum of the readings, W; a GPU that is lost has none."""
    return sum([gpu.power_w for gpu in view.gpus if not math.isnan(gpu.power_w)])


def _as_start(move: Migrate) -> Start:
    return Start(move.task, move.gpu, move.mps_pct, move.batch_size, move.also, move.sharing)


def _placed(task: Task, batch_size: int | None) -> Workload:
    return task.workload if batch_size is None else replace(task.workload, batch_size=batch_size)


def _resident(task: Task, start: Start) -> Resident:
    return Resident(_placed(task, start.batch_size), start.mps_pct, start.sharing)


def _as_residents(residents: Iterable[Resident]) -> Residents:
    return tuple(sorted(residents, key=str))


class _PowerBounds:
    """Upper bounds of the power of GPUs by what runs on them and their requested clocks.

    A state that was read is known. The bound of another one is the least of

    - the power of the card with all SMs busy at the clock, at most its TDP (`_busy_w`);
    - the prediction, times one plus a margin, where the predictor was trained on runs of the card;
    - what a reading of the same residents at another clock allows (`_from_reading_w`).
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._readings: dict[tuple[int, Residents], dict[Clock, tuple[float, float]]] = {}
        self._predicted: dict[tuple[Gpu, Residents], dict[Clock, float]] = {}

    def learn(self, index: int, residents: Residents, clock: Clock, power_w: float, reached_mhz: float) -> None:
        """Take over a reading of a GPU, W, at a requested clock, and the clock that it reached."""
        readings = self._readings.setdefault((index, residents), {})
        before_w, _ = readings.get(clock, (power_w, 0.0))
        # The power of real GPUs fluctuates, so that peaks are forgotten slowly.
        peak_w = max(power_w, before_w + 0.1 * (power_w - before_w))
        readings[clock] = peak_w, reached_mhz

    def bound_w(self, index: int, gpu: Gpu, residents: Residents, clock: Clock, margin: float) -> float:
        """Return an upper bound of the power of a GPU with these residents at a requested clock, W."""
        readings = self._readings.get((index, residents), {})
        if clock in readings:
            return readings[clock][0]
        if not residents:
            return _idle_w(gpu)

        # Without a margin it is the power that is expected, on any card.
        bounds = [_busy_w(gpu, residents, clock)]
        if margin == 0.0 or self._predictor.is_trained_on(gpu):
            bounds.append((1.0 + margin) * self._predicted_w(gpu, residents, clock))
        several = len(residents) > 1
        bounds += [_from_reading_w(gpu, several, *reading, _mhz(gpu, clock)) for reading in readings.values()]
        return min(bounds)

    def _predicted_w(self, gpu: Gpu, residents: Residents, clock: Clock) -> float:
        """Return the predicted power, W; `inf` where the predictor does not know the residents."""
        predicted = self._predicted.setdefault((gpu, residents), {})
        if clock not in predicted:
            # Where one clock is not enough, others are looked at, too: the whole grid is predicted at once.
            clocks = [clock, *[other for other in gpu.clocks_mhz if predicted and other not in (clock, *predicted)]]
            try:
                answer = self._predictor.co_run([residents] * len(clocks), gpu, clocks).power_w
                predicted.update(zip(clocks, np.where(np.isfinite(answer), answer, math.inf).tolist(), strict=True))
            except InputError:
                predicted.update(dict.fromkeys(clocks, math.inf))
        return predicted[clock]


def _from_reading_w(gpu: Gpu, several: bool, power_w: float, read_mhz: float, sm_mhz: float) -> float:
    """Return the bound of the power at a clock that a reading of the same residents at another clock gives, W.

    Dynamic power is proportional to V(f)^2 f times the load. At a lower clock the load rises at most as 1/f; at a
    higher one it does not rise for one resident, and for several by `GROWTH`.
    """
    faster = max(sm_mhz / read_mhz, 1.0)
    power = default().power.get(gpu.name)
    if power is None:
        # Of a card without a voltage curve: it rises at most as the clock.
        volts = faster
    else:
        at, read = (voltage(mhz, power.knee_mhz, power.v_min, gpu.max_mhz) for mhz in (sm_mhz, read_mhz))
        volts = at / read
    load: float = faster ** (GROWTH if several else 1.0)
    dynamic_w = max(power_w - _idle_w(gpu), 0.0)
    return _idle_w(gpu) + dynamic_w * volts**2 * load


@lru_cache(maxsize=16_384)
def _busy_w(gpu: Gpu, residents: Residents, clock: Clock) -> float:
    """Return the power of a card at a clock with all SMs busy under its strongest load, at most its TDP, W.

    The loads of inference are known; for residents that train and for language models it is the TDP.
    """
    power = default().power.get(gpu.name)
    known = [one.workload.phase == "inference" and catalogue.shape(one.workload.model) is None for one in residents]
    if power is None or not all(known):
        return gpu.tdp_w
    sm_mhz = _mhz(gpu, clock)
    busy_w = power.clock_w + power.dynamic_w * _strongest_load(gpu, residents)
    rest_w = _idle_w(gpu) + idle_power_w(power, sm_mhz, gpu.max_mhz) - power.idle_w
    factor = float(switching(sm_mhz, power.knee_mhz, power.v_min, gpu.max_mhz))
    return min(gpu.tdp_w, rest_w + factor * busy_w)


@lru_cache(maxsize=4096)
def _strongest_load(gpu: Gpu, residents: Residents) -> float:
    """Return the dynamic power of the strongest of residents and known networks, over the GPU's at the intensity 1.

    SMs that all work draw at most the power of the strongest resident, also where tasks take turns
    (`heshare.devices.board_power`).
    """
    own = [iteration_of(default(), gpu.name, resident).intensity for resident in residents]
    return max([1.0, _strongest_network(gpu), *own])


@lru_cache(maxsize=256)
def _strongest_network(gpu: Gpu) -> float:
    timing, networks = default().timing, [model.name for model in catalogue.models().values() if not model.language]
    labels = dict.fromkeys(gpu.arithmetic(precision, "cnn") for precision in PRECISIONS)
    keys = product((gpu.name,), ENGINES, networks, labels)
    return max(known.intensity for key in keys if (known := timing.get(key)) is not None)


catalogue.cleared_by_registrations(_busy_w, _strongest_load, _strongest_network)


def _idle_w(gpu: Gpu) -> float:
    """Return the power of a GPU with a context or a held clock and nothing running, W."""
    power = default().power.get(gpu.name)
    return gpu.idle_w if power is None else max(gpu.idle_w, power.idle_w)


def _mhz(gpu: Gpu, clock: Clock) -> int:
    """Return a requested clock, or the top clock for the card's default, MHz."""
    return gpu.max_mhz if clock is None else clock


def _reached_mhz(view: GpuView) -> float:
    return min(view.sm_mhz, _mhz(view.gpu, view.requested_mhz))


def _lowest(gpu: Gpu) -> Clock:
    """Return the lowest clock that can be set; None where none can."""
    return gpu.clocks_mhz[0] if len(gpu.clocks_mhz) > 1 else None
