"""A seed: a run under its faults, resumed until it is over; then every promise is checked."""

from __future__ import annotations

import random
import signal
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from support.simulator.disk import SimPath
from support.simulator.edges import SimMachine
from support.simulator.faults import Fault, Injector, Schedule
from support.simulator.kernel import Process
from support.simulator.power_limit import PowerLimit
from support.simulator.promises import Promises

from heshare.lab.limits.run_terms import RunTerms
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops import mps
from heshare.ops.clocks import clock_notes
from heshare.ops.executor import execute, watchdog
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.jobs import entries
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.workers import output_limit
from heshare.policies.policy import EventKind, SetClock, Start, Traits
from heshare.policies.random_placement import Random
from heshare.prediction.predictor import CoRuns
from heshare.shared import journal
from heshare.shared.errors import HeShareError
from heshare.shared.signals import Interrupted
from heshare.testing.toy import ToyPredictor
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

TIMEOUTS = Timeouts(poll_s=5.0, memory_s=10.0, nvml_s=2.0, grace_s=1.0, settle_s=4.0, mps_pauses_s=(1.0, 4.0))
SESSIONS, FAULTY = 9, 3
"""Most sessions of a run, and how many of them have faults."""
LONGEST_S = 900.0
STOP_S = 60.0
"""Longest time of a stop, s: a job's grace, an MPS daemon that is deaf, and NVML's deadlines on each card."""
HITS_JOBS = ("kill-reaper", "mps-dies", "lost", "mps-deaf", "full", "disk-full", "broken", "memory", "refuse")
"""Faults that an attempt can fail by, and a job with it where it has no retry left."""
_POWER = TenantPower()
FOLDER, RIVAL = "/runs/a", "/runs/b"


class Clocked(Random):
    """Random, all at once, with another clock at each decision, so that there are clocks to give back."""

    name = "clocked"

    def __init__(self) -> None:
        super().__init__(all_at_once=True)
        self.traits = Traits(frequency=True, multi_task=True, heterogeneous=False)

    def decide(self, event: Any, view: Any) -> Any:
        yield from self._starts(event, view)
        for gpu in view.gpus:
            if len(gpu.gpu.clocks_mhz) > 1:
                yield SetClock(gpu.index, gpu.gpu.clocks_mhz[int(self.rng.integers(len(gpu.gpu.clocks_mhz) - 1))])

    def _starts(self, event: Any, view: Any) -> Any:
        return super().decide(event, view)


class Careless(Clocked):
    """Starts each task that arrives, on GPUs drawn at random, whatever runs there."""

    gangs = True

    def _starts(self, event: Any, view: Any) -> Any:
        for task in view.waiting if event.kind is EventKind.ARRIVAL else ():
            gpu, *also = map(int, self.rng.permutation(len(view.gpus))[: task.gpus])
            yield Start(task.id, gpu, also=tuple(also))


class Rated(ToyPredictor):
    """A predictor of the most that a card draws."""

    def co_run(self, sets: Any, gpu: Any, sm_mhz: Any) -> CoRuns:
        return CoRuns(super().co_run(sets, gpu, sm_mhz).time_s, np.full(len(sets), gpu.tdp_w))


def spec(name: str, **more: Any) -> JobSpec:
    given = {"timeout_s": None, "retries": 0, "memory_mib": 1000.0, "arrival_s": 0.0, **more}
    folder = SimPath("/home")
    return JobSpec(
        name, (name,), Workload("resnet50", 8), 100.0, None, 1, directory=folder, environment=(), row=1, **given
    )


@dataclass(frozen=True)
class Report:
    """Stands for the report of a run, which takes longer to write than all else here; the journal has the results."""

    drained: bool = False

    def write(self, folder: Any) -> Report:
        return self


@dataclass
class Outcome:
    """What a seed showed."""

    seed: int
    machine: SimMachine
    sessions: int

    @property
    def violations(self) -> list[str]:
        return [text for text, _ in self.machine.violations]

    def log(self) -> str:
        return "".join(" ".join(map(str, line)) + "\n" for line in self.machine.history)

    @property
    def digest(self) -> str:
        return f"{zlib.crc32(self.log().encode()):08x}"


class Simulation:
    """One schedule of faults on one machine."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.machine = machine = SimMachine(schedule.cards, schedule.jobs, mps=schedule.mps)
        self.specs = tuple(
            spec(
                name,
                retries=schedule.retries.get(name, 0),
                timeout_s=schedule.timeouts.get(name),
                gpus=plan.gpus,
                arrival_s=plan.arrival_s,
            )
            for name, plan in schedule.jobs.items()
        )
        self._rng = random.Random(schedule.seed)
        self.injector = Injector(machine, schedule)
        self.injector.rival = self._rival
        self.promises = Promises(machine, self._rng)
        machine.nvml.unprivileged = schedule.unprivileged
        self._power = PowerLimit(machine, schedule)
        self._rivals: list[Process] = []
        self._killed = False

    def run(self, more: Mapping[tuple[ModuleType, str], Any] | None = None) -> Outcome:
        """Run it to its end; `more` replaces further names of modules, for faults put back on purpose."""
        names: dict[tuple[ModuleType, str], Any] = {
            (execute, "read_jobs"): lambda file: self.specs,
            (execute, "make"): lambda name: Careless() if self.schedule.gangs else Clocked(),
            (execute.job_tasks, "check_programs"): lambda specs, file: None,
            (execute, "run_outcome"): lambda state: Report(),
            (output_limit, "LOOK_S"): 10.0,
            (journal, "journal_entry"): cache(journal.journal_entry),
        }
        sessions = 0
        with self.machine.linked({**names, **(more or {})}):
            while sessions < SESSIONS and not (sessions and self._over(FOLDER)):
                if sessions == FAULTY:
                    self.injector.calm()
                    self._wait_for(self._rivals)  # as long as one has the cards, every session is refused
                self._session(FOLDER)
                sessions += 1
            self.injector.calm()
            self._wait_for(self._rivals)
            if self._rivals and not self._over(RIVAL):
                self._session(RIVAL)
            self._restore()
            self._judge()
        return Outcome(self.schedule.seed, self.machine, sessions)

    def _begun(self, folder: str) -> bool:
        return any(isinstance(entry, entries.Decision) for entry in self.promises.entries(folder))

    def _over(self, folder: str) -> bool:
        over = {
            entry.job
            for entry in self.promises.entries(folder)
            if isinstance(entry, entries.End) and (entry.completed or (entry.failure and not entry.again))
        }
        return over >= self.schedule.jobs.keys()

    def _start(self, folder: str) -> Process:
        process = Process(self.machine, "executor", self.machine.environment(FOLDER=folder), None)
        schedule, path, begun = self.schedule, SimPath(folder), self._begun(folder)
        predictor = Rated() if schedule.limit_w is not None and schedule.foreseen else ToyPredictor()
        # Below a limit cards are read before their power counts as settled, as by default.
        timeouts = TIMEOUTS if schedule.limit_w is None else replace(TIMEOUTS, poll_s=1.0)
        options = execute.ExecutorOptions(timeouts=timeouts, tenant_power=_POWER)

        def program() -> None:
            if begun:
                execute.resume(path, predictor=predictor, options=options)
            else:
                execute.execute(
                    SimPath("/home/jobs.yaml"), path, policy="clocked", devices="nvml", predictor=predictor,
                    options=options, allow_clocks=schedule.clocks, seed=schedule.seed,
                    terms=RunTerms.parse(schedule.limit_w),
                )  # fmt: skip

        process.run(program)
        return process

    def _session(self, folder: str) -> None:
        machine = self.machine
        process = self._start(folder)
        if folder == FOLDER:
            self.injector.stopped_s = None
            self._power.begin(process)
            self.injector.begin(process, folder)
        self._wait_for([process])
        self.promises.stop_in_time(self.injector.stopped_s, STOP_S)
        error = process.failed
        if folder == FOLDER:
            self._killed = (process.returncode or 0) < 0
        machine.log("session", folder, process.returncode, type(error).__name__, error)
        if error is not None and not isinstance(error, HeShareError | Interrupted):
            machine.violate(f"the executor ended by {type(error).__name__}: {error}", error)
        self.promises.journal_readable(folder)
        if self._rng.random() < 0.5:
            machine.run_until(lambda: False, self._rng.choice((0.01, 0.3, 30.0)))

    def _wait_for(self, processes: list[Process]) -> None:
        if not self.machine.run_until(lambda: not any(one.alive for one in processes), LONGEST_S):
            self.machine.violate(f"a run has not ended after {LONGEST_S:g} s")
            for one in processes:
                one.signal(signal.SIGKILL)

    def _rival(self) -> None:
        self._rivals.append(self._start(RIVAL))

    def _restore(self) -> None:
        """Wait for the helpers, then do what `heshare restore` does."""
        machine = self.machine
        machine.run_until(lambda: not any(one.alive for one in machine.processes.values()), 300.0)

        def restore() -> None:
            watchdog.clean_up_killed_runs()
            clock_notes.restore()
            mps.sweep()

        machine.run_until(lambda: False, 100.0)
        process = Process(machine, "restore", machine.environment(), None)
        process.run(restore)
        machine.run_until(lambda: not any(one.alive for one in machine.processes.values()), 300.0)

    def _judge(self) -> None:
        schedule, promises = self.schedule, self.promises
        may_fail = {name for name, plan in schedule.jobs.items() if plan.codes or name in schedule.timeouts}
        if schedule.has(*HITS_JOBS):
            may_fail |= schedule.jobs.keys()
        promises.each_job_once(FOLDER, list(schedule.jobs), may_fail)
        promises.energy(FOLDER, killed=self._killed)
        if schedule.unprivileged:
            promises.refusal_said(FOLDER)
        promises.nothing_left()


def simulate(seed: int, more: Mapping[tuple[ModuleType, str], Any] | None = None) -> Outcome:
    return Simulation(Schedule.of(seed)).run(more)


def crash_at_every_write(
    kinds: tuple[str, ...] = ("kill-before", "kill-middle", "kill-after"), *, step: int = 1
) -> int:
    """Crash a run of 6 jobs at each change of a file (or every `step`-th), resume it, and return how many there were.

    Raises:
        AssertionError: a promise was broken.
    """
    crashes = 0
    for kind in kinds:
        change = 1
        while True:
            simulation = Simulation(Schedule.crash(kind, change))
            outcome = simulation.run()
            assert not outcome.violations, (kind, change, outcome.violations)
            if not simulation.injector.struck:
                break  # the run has fewer changes
            crashes += 1
            change += step
    return crashes


def warm() -> None:
    """Read what modules keep for good, from the real disk, before they run on the machine in memory."""
    gpu, workload = catalogue.gpus()["H100"], Workload("resnet50", 8)
    _POWER.shares_j(gpu, [Resident(workload, 100), Resident(workload, 50)], 1980.0, 10.0, 1.0)
    catalogue.memory_mib(workload)
    with suppress(HeShareError):
        entries.decode(entries.encode(entries.Run("random", (spec("a"),))))


__all__ = ["Fault", "Outcome", "Schedule", "Simulation", "crash_at_every_write", "simulate", "warm"]
