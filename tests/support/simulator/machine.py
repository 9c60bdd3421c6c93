"""A machine in virtual time: its cards, the processes of jobs and the MPS daemons, and what really happened on it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from heshare.ops.nvml.binding import GpuLostError, NoPermissionError, NoReadingError

if TYPE_CHECKING:
    from support.simulator.process import SimProcess

GRID_MHZ = tuple(range(1410, 1981, 15))
IDLE_W, LIMIT_W = 70.0, 700.0
MEMORY_MIB = 81559.0
HARMLESS_XID, DRAINING_XID = 13, 79
_START_J = 5e6


@dataclass(eq=False)
class Card:
    """A card: what it does, and what NVML says of it.

    Attributes:
        true_j: its energy; the counter that it shows may differ by `offset_j`, or stand still at `still_j`.
        failing: until when each reading fails, s.
        events: Xids that nobody has read yet.
        drained_s: when the first Xid that drains it came.
        shown: the time of each value of the counter that was read.
    """

    uuid: str
    machine: Machine
    locked_mhz: int | None = None
    jobs: list[JobRun] = field(default_factory=list)
    true_j: float = _START_J
    offset_j: float = 0.0
    still_j: float | None = None
    lost_s: float = math.inf
    hung_until_s: float = -math.inf
    failing: dict[str, float] = field(default_factory=dict)
    used_mib: float = 0.0
    unprivileged: bool = False
    events: list[int] = field(default_factory=list)
    drained_s: float = math.inf
    shown: dict[float, float] = field(default_factory=dict)
    _times_s: list[float] = field(default_factory=lambda: [0.0])
    _energies_j: list[float] = field(default_factory=lambda: [_START_J])
    _idle_j: list[float] = field(default_factory=lambda: [0.0])

    @property
    def power_w(self) -> float:
        slow = ((self.locked_mhz or GRID_MHZ[-1]) / GRID_MHZ[-1]) ** 3
        return min(LIMIT_W, IDLE_W + slow * sum(job.plan.power_w for job in self.jobs))

    def settle(self) -> None:
        """Bring its energy to the present, before its power changes and whenever it is read."""
        drawn_j = self.power_w * (self.machine.now_s - self._times_s[-1])
        self.true_j += drawn_j
        self._times_s.append(self.machine.now_s)
        self._energies_j.append(self.true_j)
        self._idle_j.append(self._idle_j[-1] + (0.0 if self.jobs else drawn_j))

    def energy_at(self, time_s: float) -> float:
        """Return its true energy at a time that has been, J."""
        return self._at(time_s, self._energies_j)

    def idle_at(self, time_s: float) -> float:
        """Return the part of it without any job, J."""
        return self._at(time_s, self._idle_j)

    def _at(self, time_s: float, values_j: list[float]) -> float:
        at = min(bisect_right(self._times_s, time_s), len(self._times_s) - 1)
        (from_s, to_s), (from_j, to_j) = self._times_s[at - 1 : at + 1], values_j[at - 1 : at + 1]
        return from_j if to_s == from_s else from_j + (to_j - from_j) * (time_s - from_s) / (to_s - from_s)

    def call(self, name: str, *arguments: Any) -> Any:
        """Return what a method of `NvmlGpu` returns for it."""
        if self.machine.now_s >= self.lost_s:
            raise GpuLostError(f"GPU {self.uuid}: lost")
        if self.failing.get(name, -math.inf) > self.machine.now_s:
            raise NoReadingError(f"GPU {self.uuid}: no {name}")
        match name:
            case "energy_j":
                self.settle()
                shown_j = self.true_j + self.offset_j if self.still_j is None else self.still_j
                self.shown.setdefault(shown_j, self.machine.now_s)
                return shown_j
            case "instant_power_w" | "usage_power_w":
                return self.power_w
            case "sm_mhz":
                return float(self.locked_mhz or GRID_MHZ[-1])
            case "memory_mib":
                return MEMORY_MIB, MEMORY_MIB - self.used_mib
            case "health":
                events, self.events = self.events, []
                return [(number == DRAINING_XID, f"Xid {number}") for number in events]
            case "lock_clock" | "unlock_clock":
                self._set_clock(*arguments)
                return None
        return _FACTS[name]

    def _set_clock(self, sm_mhz: int | None = None) -> None:
        if self.unprivileged:
            raise NoPermissionError(f"GPU {self.uuid}: no permission")
        if sm_mhz is not None:
            self.machine.locking(self)
        self.settle()
        self.locked_mhz = sm_mhz
        self.machine.log("clock", self.uuid, sm_mhz)


_FACTS: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "cores": 16896,
    "offered_mhz": GRID_MHZ,
    "limits": (),
    "idles": False,
    "power_limit_w": LIMIT_W,
    "compute_mode": "default",
    "mig": False,
    "remap_failed": False,
}


@dataclass(frozen=True)
class JobPlan:
    """How a job behaves: its time, s; the exit codes of its first attempts; how long it ignores SIGTERM, s; power, W.

    `stuck` says that it hangs on a card that is lost, instead of failing.
    """

    duration_s: float
    codes: tuple[int, ...] = ()
    ignores_sigterm_s: float = 0.0
    power_w: float = 150.0
    stuck: bool = False


@dataclass(eq=False)
class JobRun:
    """What really happened to one start of a job, by which process of an executor."""

    key: str
    attempt: int
    plan: JobPlan
    card: Card
    process: SimProcess
    token: str
    code: int | None = None
    supervised: bool = True
    asked: bool = False

    @property
    def alive(self) -> bool:
        return self.code is None


@dataclass(eq=False)
class Daemon:
    """An MPS daemon of a card, started by a process."""

    card: Card
    process: SimProcess
    alive: bool = True


class Machine:
    """The machine; `process` is the one whose code runs at present, None for the simulator itself.

    `starting` and `locking` are called with each job that starts and each card whose clock is locked.
    """

    def __init__(self, cards: int) -> None:
        self.now_s = 0.0
        self.cards = {f"GPU-{index}": Card(f"GPU-{index}", self) for index in range(cards)}
        self.runs: list[JobRun] = []
        self.daemons: list[Daemon] = []
        self.process: SimProcess | None = None
        self.history: list[str] = []
        self.violations: list[str] = []
        self.starting: Callable[[JobRun], None] = lambda run: None
        self.locking: Callable[[Card], None] = lambda card: None
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()

    def log(self, *words: object) -> None:
        self.history.append(f"{self.now_s:.6f} {' '.join(map(str, words))}")

    def violate(self, text: str) -> None:
        """Note that an invariant was violated."""
        if text not in self.violations:
            self.violations.append(text)
            self.log("VIOLATION", text)

    # Time.

    def later(self, after_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Have a function called so many seconds from now."""
        heappush(self._events, (self.now_s + after_s, next(self._numbers), call, arguments))

    def step(self, until_s: float) -> None:
        """Go on to the next event, at most to a time."""
        if self._events and self._events[0][0] <= until_s:
            time_s, _, call, arguments = heappop(self._events)
            self.now_s = max(self.now_s, time_s)
            call(*arguments)
        else:
            self.now_s = max(self.now_s, until_s)

    def advance(self, until_s: float) -> None:
        """Go on to a time, outside any process."""
        while self.now_s < until_s:
            self.step(until_s)

    # Jobs.

    def start_job(self, run: JobRun) -> None:
        self.log("start", run.key, run.attempt, run.card.uuid)
        self.starting(run)
        self.runs.append(run)
        run.card.settle()
        run.card.jobs.append(run)
        code = run.plan.codes[run.attempt - 1] if run.attempt <= len(run.plan.codes) else 0
        self.later(run.plan.duration_s, self.end_by_itself, run, code)
        if self.now_s >= run.card.lost_s:
            self.later(0.05, self._notice_loss, run)

    def end_by_itself(self, run: JobRun, code: int) -> None:
        """End a job as it would, unless it hangs on a lost card."""
        if not (run.plan.stuck and self.now_s >= run.card.lost_s):
            self.end(run, code)

    def end(self, run: JobRun, code: int) -> None:
        """End a job, if it still runs."""
        if run.alive:
            run.card.settle()
            run.card.jobs.remove(run)
            run.code = code
            self.log("end", run.key, run.attempt, code)

    def ask_to_end(self, run: JobRun, grace_s: float) -> None:
        """Send SIGTERM, as its supervisor does, and SIGKILL after the grace; once."""
        if run.alive and not run.asked:
            run.asked = True
            self.later(
                min(grace_s, max(0.05, run.plan.ignores_sigterm_s)),
                self.end,
                run,
                -9 if run.plan.ignores_sigterm_s > grace_s else -15,
            )

    def _notice_loss(self, run: JobRun) -> None:
        if not run.plan.stuck:
            self.end(run, 1)

    # Faults.

    def lose(self, card: Card) -> None:
        card.lost_s = self.now_s
        for run in list(card.jobs):
            self.later(0.05, self._notice_loss, run)

    def xid(self, card: Card, number: int) -> None:
        card.events.append(number)
        if number == DRAINING_XID:
            card.drained_s = min(card.drained_s, self.now_s)

    def kill_daemons(self) -> None:
        for daemon in self.daemons:
            daemon.alive = False
            for run in daemon.card.jobs:
                self.later(0.3, self.end, run, 1)

    def repair(self) -> None:
        """End every fault; a lost card is back after a reset, which forgets a locked clock."""
        for card in self.cards.values():
            if card.lost_s < math.inf:
                card.settle()
                card.locked_mhz, card.offset_j = None, 1.0 - card.true_j
            card.lost_s = card.drained_s = math.inf
            card.hung_until_s, card.used_mib, card.still_j = self.now_s, 0.0, None
            card.failing.clear()
            card.events.clear()
