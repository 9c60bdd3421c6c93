"""What a seed draws: cards, jobs and how they behave, and the faults of each session."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from support.simulator.machine import DRAINING_XID, HARMLESS_XID, JobPlan, Machine
from support.simulator.process import WHERE

NVML_FAULTS = (
    "hung", "lost", "xid", "jump", "still", "without-counter", "without-power", "without-clock", "memory", "mps-dies",
)  # fmt: skip
UNTRUE_READINGS = ("jump", "still", "without-counter", "without-power")
"""Faults by which the energy of a card can only be estimated."""
_LONG_S = 300.0


@dataclass(frozen=True)
class Fault:
    """A fault of a card from a time of a session on, s, and for how long, s; `value` is a step of its counter, J."""

    kind: str
    at_s: float
    lasts_s: float
    card: int
    value: float = 0.0


@dataclass(frozen=True)
class SessionPlan:
    """The faults of one session.

    Attributes:
        crash: at which change of a file it is killed and where (`process.WHERE`); `crash_s` kills it at a time, s.
        stop_s, stop_at: when it is asked to end, s, or before which change of a file.
        stop_in_release: it is asked to end while it gives back what it has.
        again_s: how long after that it is asked again, s; None for once.
        by_command: it is asked by `heshare jobs stop`.
        cleanup: whether its cleanup process outlives a crash; `cleanup_crash` is where that one is killed in turn.
        supervisors: whether the supervisors of its jobs outlive a crash.
        second_run_s: when another run tries to get its cards, s; `other_user` is one of another user.
        rests_s: the time to the next session, s; `set_back_s` is by how much the wall clock is set back then, s.
    """

    faults: tuple[Fault, ...] = ()
    crash: tuple[int, str] | None = None
    crash_s: float | None = None
    stop_s: float | None = None
    stop_at: int | None = None
    stop_in_release: bool = False
    again_s: float | None = None
    by_command: bool = False
    cleanup: bool = True
    cleanup_crash: tuple[int, str] | None = None
    supervisors: bool = True
    second_run_s: float | None = None
    other_user: bool = False
    rests_s: float = 0.0
    set_back_s: float = 0.0


@dataclass
class Schedule:
    """A run: its cards and jobs, and its first sessions; further ones have no faults."""

    seed: int
    cards: int
    clocks: bool
    mps: bool
    jobs: dict[str, JobPlan]
    retries: dict[str, int]
    timeouts_s: dict[str, float] = field(default_factory=dict)
    unprivileged: bool = False
    sessions: list[SessionPlan] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int) -> Schedule:
        rng = random.Random(seed)
        jobs, retries, timeouts_s = {}, {}, {}
        long = rng.random() < 0.1
        for index in range(rng.randint(2, 5)):
            name = f"j{index}"
            fails = rng.random() < 0.25
            jobs[name] = JobPlan(
                _LONG_S if long and index == 0 else round(rng.uniform(0.5, 12.0), 3),
                codes=(rng.choice((1, 3, -9)),) * rng.randint(1, 3) if fails else (),
                ignores_sigterm_s=rng.choice((0.5, 30.0)) if rng.random() < 0.15 else 0.0,
                power_w=round(rng.uniform(30.0, 120.0), 1),
                stuck=rng.random() < 0.3,
            )
            retries[name] = rng.randint(0, 2)
            if rng.random() < 0.1:
                timeouts_s[name] = round(rng.uniform(0.5, 10.0), 3)

        schedule = cls(seed, rng.randint(1, 2), rng.random() < 0.6, rng.random() < 0.8, jobs, retries, timeouts_s)
        schedule.unprivileged = schedule.clocks and rng.random() < 0.1
        faulty = rng.random() < 0.5
        schedule.sessions = [schedule._session(rng, faulty=faulty) for _ in range(rng.choice((1, 1, 2, 3)))]
        return schedule

    def _session(self, rng: random.Random, *, faulty: bool) -> SessionPlan:
        plan = SessionPlan(
            faults=tuple(self._fault(rng) for _ in range(rng.choice((1, 1, 2)))) if faulty else (),
            cleanup=rng.random() < 0.7,
            cleanup_crash=(rng.randint(1, 3), rng.choice(WHERE)) if rng.random() < 0.4 else None,
            supervisors=rng.random() < 0.6,
            rests_s=rng.choice((0.0, 0.3, 30.0)),
            set_back_s=rng.choice((0.0, 0.0, 0.0, 3600.0)),
        )
        changes: dict[str, object] = {}
        match rng.random():
            case draw if draw < 0.3:
                changes["crash"] = rng.randint(1, 70), rng.choice(WHERE)
            case draw if draw < 0.4:
                changes["crash_s"] = rng.uniform(0.0, 12.0)
            case draw if draw < 0.75:
                changes |= self._stop(rng)
        if rng.random() < 0.2:
            changes |= {"second_run_s": rng.uniform(0.0, 8.0), "other_user": rng.random() < 0.5}
        return SessionPlan(**{**vars(plan), **changes})  # type: ignore[arg-type]

    def _stop(self, rng: random.Random) -> dict[str, object]:
        again_s = rng.uniform(0.0, 2.0) if rng.random() < 0.5 else None
        if rng.random() < 0.3:
            return {"stop_at": rng.randint(1, 60)}
        if rng.random() < 0.2:
            return {"stop_in_release": True}
        return {"stop_s": rng.uniform(0.0, 10.0), "again_s": again_s, "by_command": rng.random() < 0.4}

    def _fault(self, rng: random.Random) -> Fault:
        kind = rng.choice(NVML_FAULTS)
        value = float(rng.choice((1e9, -1e6))) if kind == "jump" else 0.0
        if kind == "xid":
            value = float(rng.choice((HARMLESS_XID, DRAINING_XID)))
        lasts_s = rng.choice((rng.uniform(0.1, 3.0), rng.uniform(3.0, 40.0)))
        return Fault(kind, rng.uniform(0.0, 9.0), lasts_s, rng.randrange(self.cards), value)

    @classmethod
    def crash_at(cls, change: int, where: str) -> Schedule:
        """Return a run of 6 jobs without other faults that is killed at a change of a file, and resumed."""
        rng = random.Random(6)
        jobs = {f"j{index}": JobPlan(round(rng.uniform(0.5, 4.0), 3)) for index in range(6)}
        jobs["j1"] = JobPlan(1.0, codes=(3,))
        retries = {name: int(name == "j1") for name in jobs}
        return cls(change, 2, True, True, jobs, retries, sessions=[SessionPlan(crash=(change, where))])

    def has(self, *kinds: str) -> bool:
        return any(fault.kind in kinds for session in self.sessions for fault in session.faults)


def apply_fault(machine: Machine, fault: Fault) -> None:
    """Have a fault happen now."""
    card = list(machine.cards.values())[fault.card]
    until_s = machine.now_s + fault.lasts_s
    machine.log("fault", fault.kind, card.uuid, fault.value)
    match fault.kind:
        case "hung":
            card.hung_until_s = max(card.hung_until_s, until_s)
        case "lost":
            machine.lose(card)
        case "xid":
            machine.xid(card, int(fault.value))
        case "jump":
            card.offset_j += fault.value
        case "still":
            card.still_j = card.call("energy_j") if machine.now_s < card.lost_s else None
            machine.later(fault.lasts_s, setattr, card, "still_j", None)
        case "without-counter" | "without-power" | "without-clock":
            names = {"counter": ("energy_j",), "power": ("instant_power_w", "usage_power_w"), "clock": ("sm_mhz",)}
            card.failing |= dict.fromkeys(names[fault.kind.removeprefix("without-")], until_s)
        case "memory":
            card.used_mib = 81_000.0
            machine.later(fault.lasts_s, setattr, card, "used_mib", 0.0)
        case "mps-dies":
            machine.kill_daemons()
