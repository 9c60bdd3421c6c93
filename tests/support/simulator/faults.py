"""The schedule of faults of a run, all of it drawn from one seed."""

from __future__ import annotations

import errno
import random
import signal
from dataclasses import dataclass, field
from typing import Any

from support.simulator.cards import IDLE_W, LIMIT_W, JobPlan
from support.simulator.disk import failure
from support.simulator.edges import SimMachine
from support.simulator.kernel import Process

AT_WRITE = ("kill-before", "kill-middle", "kill-after", "full", "broken", "short")
"""What happens at one change of a file: its process dies, the disk is full or broken, or a write is cut short."""
AT_TIME = (
    "sigterm", "sigkill", "stop", "drain", "hang", "slow", "lost", "refuse", "lie", "counter", "xid", "throttle",
    "mps-dies", "mps-refuses", "mps-hangs", "mps-deaf", "kill-card_process", "kill-watchdog", "kill-clock_service",
    "kill-reaper", "disk-full", "power-cut", "memory", "rival",
)  # fmt: skip
"""What happens at one moment."""
_CALLS = (
    "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMemoryInfo", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
)  # fmt: skip
LEAST_W = 495.0
"""Power above idle that the package expects of a busy card at its lowest clock, at most, W."""
_CODES = (3, 4, 10, 15, 21, 999)
_LIES = {"clock": (0.0, 5e9), "power": (0.0, 1e6, -5.0), "energy": (0.0, 1.0, 1e12)}


@dataclass(frozen=True)
class Fault:
    """One fault: its kind; the number of the change, or the time, s, in one session; for how long, s."""

    kind: str
    session: int
    at: float
    lasts_s: float = 0.0
    card: int = 0
    detail: tuple[Any, ...] = ()


@dataclass
class Schedule:
    """What a seed draws: cards, jobs, how they behave, and the faults of the first sessions."""

    seed: int
    cards: int
    clocks: bool
    mps: bool
    jobs: dict[str, JobPlan]
    retries: dict[str, int]
    timeouts: dict[str, float]
    faults: list[Fault] = field(default_factory=list)
    limit_w: float | None = None
    foreseen: bool = True
    unprivileged: bool = False

    @property
    def gangs(self) -> bool:
        return any(plan.gpus > 1 for plan in self.jobs.values())

    @classmethod
    def of(cls, seed: int) -> Schedule:
        rng = random.Random(seed)
        names = [f"j{index}" for index in range(rng.randint(2, 5))]
        jobs, retries, timeouts = {}, {}, {}
        for name in names:
            fails = rng.random() < 0.2
            jobs[name] = JobPlan(
                round(rng.uniform(0.5, 12.0), 3),
                codes=(rng.choice((1, 3, -9)),) * rng.randint(1, 2) if fails else (),
                deaf=rng.random() < 0.1,
                power_w=rng.uniform(50.0, 300.0),
            )
            retries[name] = rng.randint(0, 2)
            if rng.random() < 0.1:
                timeouts[name] = round(rng.uniform(0.5, 10.0), 3)
        schedule = cls(seed, rng.randint(1, 2), rng.random() < 0.4, rng.random() < 0.8, jobs, retries, timeouts)
        if rng.random() < 0.2:
            schedule._draw_gangs(rng)
        schedule.unprivileged = schedule.clocks and rng.random() < 0.1
        if rng.random() < 0.25:
            schedule._draw_limit(rng)
        schedule.faults = [_fault(rng, schedule, number) for number in range(rng.choice((1, 1, 2, 2, 3, 4)))]
        return schedule

    def _draw_gangs(self, rng: random.Random) -> None:
        self.cards = rng.randint(2, 3)
        for plan in self.jobs.values():
            plan.gpus = 1 + (rng.random() < 0.4)

    def _draw_limit(self, rng: random.Random) -> None:
        """Draw a power limit that each job can keep alone; where its power is `foreseen`, all draw the same."""
        most = max(plan.gpus for plan in self.jobs.values())
        least_w = IDLE_W * self.cards + most * (LEAST_W if self.clocks and not self.unprivileged else LIMIT_W - IDLE_W)
        self.limit_w = round(least_w + rng.uniform(0.0, 0.3) * max(0.0, LIMIT_W * self.cards - least_w), 1)
        self.foreseen = rng.random() < 0.5
        power_w = rng.uniform(50.0, 300.0)
        for plan in self.jobs.values():
            plan.power_w = power_w if self.foreseen else rng.uniform(200.0, 400.0)
            plan.arrival_s = rng.choice((0.0, round(rng.uniform(0.0, 8.0), 3)))

    @classmethod
    def crash(cls, kind: str, change: int, *, jobs: int = 6) -> Schedule:
        """Return a run without other faults in which the process that makes a change of a file dies at it."""
        rng = random.Random(change)
        plans = {f"j{index}": JobPlan(round(rng.uniform(0.5, 4.0), 3)) for index in range(jobs)}
        return cls(change, 2, True, True, plans, {}, {}, [Fault(kind, 0, change)])

    def has(self, *kinds: str) -> bool:
        return any(fault.kind in kinds for fault in self.faults)


def _fault(rng: random.Random, schedule: Schedule, number: int) -> Fault:
    # A session has some 60 to 100 changes of files, and some 12 s; the next one comes only where one was ended.
    session, card = rng.choice((0, 1, 2)) if number > 1 else 0, rng.randrange(schedule.cards)
    if rng.random() < 0.5:
        return Fault(rng.choice(AT_WRITE), session, rng.randint(1, 70))
    kind = rng.choice(AT_TIME)
    detail: tuple[Any, ...] = ()
    if kind == "refuse":
        detail = (rng.choice(_CALLS), rng.choice(_CODES))
    elif kind == "lie":
        name = rng.choice(sorted(_LIES))
        detail = (name, rng.choice(_LIES[name]))
    elif kind == "counter":
        detail = (rng.choice((1e9, -4000.0, 300.0)),)
    elif kind == "xid":
        detail = (rng.choice((13, 48, 79, 94)),)
    return Fault(kind, session, round(rng.uniform(0.0, 9.0), 3), round(rng.uniform(0.1, 20.0), 3), card, detail)


class Injector:
    """Has the faults of a schedule strike the run in a machine; `calm` ends them."""

    def __init__(self, machine: SimMachine, schedule: Schedule) -> None:
        self._machine, self._faults = machine, schedule.faults
        self._session, self._changes, self._full_until = -1, 0, 0.0
        self._dies_after = False
        self.stopped_s: float | None = None
        self.struck: list[str] = []
        machine.os.struck, machine.os.after = self._strike, self._after  # type: ignore[method-assign]
        self.rival: Any = lambda: None

    def begin(self, executor: Process, folder: str) -> None:
        """Begin a session: changes are counted, and times measured, from now on."""
        self._session, self._changes = self._session + 1, 0
        for fault in self._faults:
            if fault.session == self._session and fault.kind in AT_TIME:
                self._machine.later(fault.at, self._happen, fault, executor, folder)

    def calm(self) -> None:
        """Repair everything; no fault strikes any more."""
        self._faults, self._full_until = [], 0.0
        self._machine.mps_mode = "obeys"
        for card in self._machine.cards:
            card.lost, card.hung_until_s, card.slow_s, card.reasons, card.used_mib = False, 0.0, 0.0, 0, 0.0
            card.failing.clear()
            card.lying.clear()
            card.events.clear()

    def _strike(self, call: str, path: str, size: int) -> int:
        machine, self._dies_after = self._machine, False
        self._changes += 1
        if machine.now < self._full_until and call in ("create", "write", "mkdir", "link"):
            raise failure(errno.ENOSPC, path)
        for fault in self._faults:
            if fault.session == self._session and fault.at == self._changes and fault.kind in AT_WRITE:
                machine.log("fault", fault.kind, call, path)
                self.struck.append(fault.kind)
                match fault.kind:
                    case "kill-before":
                        machine.kill(machine.process)
                    case "kill-middle":
                        self._dies_after = True
                        return size // 2
                    case "kill-after":
                        self._dies_after = True
                    case "full" if call in ("create", "write", "mkdir", "link"):
                        raise failure(errno.ENOSPC, path)
                    case "broken" if call in ("write", "sync", "truncate"):
                        raise failure(errno.EIO, path)
                    case "short" if call == "write":
                        return max(1, size // 2)
        return size

    def _after(self, call: str) -> None:
        if self._dies_after:
            self._dies_after = False
            self._machine.kill(self._machine.process)

    def _happen(self, fault: Fault, executor: Process, folder: str) -> None:
        if fault not in self._faults or not executor.alive:
            return
        machine, kind, card = self._machine, fault.kind, self._machine.cards[fault.card]
        until_s = machine.now + fault.lasts_s
        machine.log("fault", kind, fault.card, *fault.detail)
        self.struck.append(kind)
        match kind:
            case "sigterm" | "sigkill":
                if kind == "sigterm" and executor.handlers:
                    self.stopped_s = machine.now
                executor.signal(signal.SIGTERM if kind == "sigterm" else signal.SIGKILL)
            case "stop" | "drain":
                if machine.disk.find(folder):
                    if kind == "stop" and executor.handlers:
                        self.stopped_s = machine.now
                    machine.disk.make(f"{folder}/control", f"{kind}\n".encode(), 0o644)
            case "hang":
                card.hung_until_s = until_s
            case "slow":
                card.slow_s = 0.2
            case "lost":
                card.lost = True
            case "refuse":
                card.failing[fault.detail[0]] = (fault.detail[1], until_s)
            case "lie":
                card.lying[fault.detail[0]] = (fault.detail[1], until_s)
            case "counter":
                card.offset_j = max(card.offset_j + fault.detail[0], 1.0 - card.energy_j)
            case "xid":
                card.events.append(fault.detail[0])
            case "throttle":
                card.reasons = 0x40
            case "memory":
                card.used_mib = 81_000.0
                machine.later(fault.lasts_s, setattr, card, "used_mib", 0.0)
            case "mps-dies":
                for daemon in machine.jobs.daemons.values():
                    daemon.signal(signal.SIGKILL)
            case "mps-refuses" | "mps-hangs" | "mps-deaf":
                machine.mps_mode = kind.removeprefix("mps-")
            case "disk-full":
                self._full_until = until_s
            case "power-cut":
                power_cut(machine)
            case "rival":
                self.rival()
            case _:
                name = {"kill-reaper": "job_reaper"}.get(kind, kind.removeprefix("kill-"))
                for process in [one for one in machine.processes.values() if one.name == name and one.alive][:1]:
                    process.signal(signal.SIGKILL)


def power_cut(machine: SimMachine) -> None:
    """Switch the machine off and on: files have what was synced, cards their own clocks; no process is left."""
    for process in list(machine.processes.values()):
        if process.alive:
            process.end(-int(signal.SIGKILL))
        process.reap()
    machine.boot += 1
    for card in machine.cards:
        card.settle()
        card.locked_mhz, card.energy_j, card.offset_j = None, 5000.0, 0.0
    _forget(machine.disk.root)


def _forget(node: Any) -> None:
    for child in node.names.values():
        if child.folder:
            _forget(child)
        else:
            child.data[:] = child.synced
