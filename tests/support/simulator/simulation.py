"""A seed: a run under its faults, resumed until it is over, and checked as its user sees it."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from support import kill_drill
from support.broken_executors import BROKEN
from support.run_entries import spec_of
from support.simulator import host as sim_host
from support.simulator.host import EPOCH, SimHost
from support.simulator.invariants import Invariants
from support.simulator.machine import Machine
from support.simulator.process import WHERE, Crash, SimProcess, WatchedFiles
from support.simulator.schedule import Schedule, SessionPlan, apply_fault

from heshare.ops import cleanup
from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.gpu_lock import GpuInUseError
from heshare.ops.jobs import run_status
from heshare.ops.jobs.entries import Entry
from heshare.ops.jobs.report import RunReport
from heshare.shared import signals
from heshare.shared.errors import DeviceError, HeShareError
from heshare.testing.toy import ToyPredictor

TIMEOUTS = Timeouts(poll_s=5.0, memory_s=10.0, nvml_s=2.0, grace_s=1.0, settle_s=4.0, mps_pauses_s=(1.0, 4.0))
MOST_SESSIONS = 9
LONGEST_S, STOP_S = 2000.0, 60.0
"""Longest time of a session, and of one that was asked to end, s: NVML's deadlines on each card, and a job's grace."""


@dataclass(frozen=True)
class Outcome:
    """What a run showed: the invariants that were violated, all that happened, and its journal."""

    violations: list[str]
    history: list[str]
    entries: list[Entry]

    @property
    def digest(self) -> str:
        text = "\n".join(self.history)
        return f"{zlib.crc32(text.encode()):08x}"


class Simulation:
    """One schedule on one machine, with real files in a folder."""

    def __init__(self, schedule: Schedule, root: Path) -> None:
        self.schedule, self.root, self.folder = schedule, root, root / "run"
        self.machine = machine = Machine(schedule.cards)
        for card in machine.cards.values():
            card.unprivileged = schedule.unprivileged
        self.files = WatchedFiles(machine, root)
        for name in ("state", "locks", "others"):
            (root / name).mkdir()
        self.specs = tuple(
            spec_of(name, directory=root, retries=schedule.retries[name], timeout_s=schedule.timeouts_s.get(name))
            for name in schedule.jobs
        )
        self.invariants = Invariants(machine, schedule, self.files, self.folder, root / "state")
        self._set_back_s = 0.0
        self._sessions = 0

    def wall_s(self) -> float:
        return EPOCH + self.machine.now_s - self._set_back_s

    def run(self, broken: str = "") -> Outcome:
        """Run sessions until all jobs are over, and check them; `broken` is a name of `support.broken_executors`."""
        with (
            self.files.watched(),
            sim_host.linked(self.machine, self.wall_s),
            mock.patch.object(execute, "read_jobs", return_value=self.specs),
            mock.patch.object(execute, "make", side_effect=lambda name: kill_drill.Drilled()),
            # Its tables as text take longer to make than all else here; what they show is checked.
            mock.patch.object(RunReport, "text", return_value=""),
            BROKEN[broken]() if broken else nullcontext(),
        ):
            while self._sessions < MOST_SESSIONS and not self.invariants.over():
                planned = self._sessions < len(self.schedule.sessions)
                plan = self.schedule.sessions[self._sessions] if planned else SessionPlan()
                if not planned:
                    self.machine.repair()
                self._session(plan)
            self.invariants.at_the_end()
            self._restore_late()
        return Outcome(self.machine.violations, self.machine.history, self.invariants.entries())

    def _session(self, plan: SessionPlan) -> None:
        machine, invariants = self.machine, self.invariants
        process = self._process("executor", crash=plan.crash, signal_at=plan.stop_at)
        host = SimHost(process, self.schedule.jobs, mps_works=self.schedule.mps)
        self._plan_events(plan, process, host)
        self._sessions += 1
        error = process.run(lambda: self._execute(host, self.folder))
        machine.log("session", type(error).__name__, error if isinstance(error, HeShareError) else "")
        if error is not None and not isinstance(error, DeviceError | signals.Interrupted | Crash):
            machine.violate(f"the executor ended by {type(error).__name__}: {error}")
        # Before it has a cleanup process, it has changed nothing, and may not have cleaned up yet after the one before.
        if not process.killed and host.cleanup_processes:
            invariants.given_back(process, unreleased=host.cleanup_processes[-1].left)
        self._end_what_is_left(plan, process, host)
        invariants.after_session(ended=not process.killed, wall_s=self.wall_s())
        self._set_back_s += plan.set_back_s
        machine.advance(machine.now_s + plan.rests_s)

    def _process(self, name: str, state: str = "state", **faults: Any) -> SimProcess:
        places = {"XDG_STATE_HOME": str(self.root / state), "HESHARE_LOCKS": str(self.root / "locks")}
        return SimProcess(self.machine, name, places, **faults)

    def _execute(self, host: SimHost, folder: Path) -> None:
        options = execute.ExecutorOptions(timeouts=TIMEOUTS, host=host)
        if self.invariants.begun(folder):
            execute.resume(folder, predictor=ToyPredictor(), options=options)
        else:
            execute.execute(
                self.root / "jobs.yaml", folder, policy="drill", devices="nvml", predictor=ToyPredictor(),
                seed=self.schedule.seed, allow_clocks=self.schedule.clocks, options=options,
            )  # fmt: skip

    # The faults of a session.

    def _plan_events(self, plan: SessionPlan, process: SimProcess, host: SimHost) -> None:
        machine = self.machine
        for fault in plan.faults:
            machine.later(fault.at_s, self._while_alive, process, apply_fault, machine, fault)
        if plan.crash_s is not None:
            machine.later(plan.crash_s, self._have, process, process.kill)
        if plan.stop_s is not None:
            stop = (lambda: self._stop_by_command(process)) if plan.by_command else process.terminate
            machine.later(plan.stop_s, self._have, process, stop)
            if plan.again_s is not None:
                machine.later(plan.stop_s + plan.again_s, self._have, process, process.terminate)
        if plan.stop_in_release:
            process.releasing = process.terminate
        late = "a run that was asked to end goes on"
        process.asked = lambda: machine.later(STOP_S, self._late, process, late)
        machine.later(LONGEST_S, self._late, process, "a run does not end")
        if plan.second_run_s is not None:
            machine.later(
                plan.second_run_s, self._have, process, lambda: self._second_run(process, other_user=plan.other_user)
            )
        host.waiting = lambda: self.invariants.status(self.wall_s())

    def _while_alive(self, process: SimProcess, call: Callable[..., None], *arguments: Any) -> None:
        if process.alive and not process.killed:
            call(*arguments)

    def _have(self, process: SimProcess, call: Callable[[], None]) -> None:
        # Exceptions are raised in the code of the process, not here, where the time goes on.
        process.pending = call if process.pending is None else process.pending

    def _late(self, process: SimProcess, found: str) -> None:
        if process.alive and not process.killed:
            self.machine.violate(found)
            self._have(process, process.kill)

    def _stop_by_command(self, process: SimProcess) -> None:
        """Ask the run to end as `heshare jobs stop` does; before it has begun there is nothing to ask."""
        other = self._process("stop")
        sent: list[bool] = []

        def signal_process(*_: Any, **__: Any) -> bool:
            sent.append(True)
            return True

        with mock.patch.object(run_status, "signal_process", signal_process):
            error = other.run(lambda: run_status.stop(self.folder))
        if error is not None and not isinstance(error, HeShareError):
            self.machine.violate(f"heshare jobs stop ended by {error!r}")
        if sent:
            process.terminate()
        elif self.invariants.session_begun():
            self.machine.violate("heshare jobs stop does not reach a run that goes on")

    def _second_run(self, process: SimProcess, *, other_user: bool) -> None:
        """Have another run try to get the same cards."""
        if not process.killed and not self.invariants.session_begun():
            return
        second = self._process("second", "others" if other_user else "state")
        host = SimHost(second, self.schedule.jobs, mps_works=self.schedule.mps)
        self.machine.log("second")
        error = second.run(lambda: self._execute(host, self.root / "second"))
        if not isinstance(error, GpuInUseError):
            self.machine.violate(f"a second run gets the cards of a run that goes on ({type(error).__name__}: {error})")

    # After a session.

    def _end_what_is_left(self, plan: SessionPlan, process: SimProcess, host: SimHost) -> None:
        """Let supervisors and the cleanup process do what they do after the end of an executor, however it came."""
        machine = self.machine
        for run in machine.runs:
            if run.process is process and process.killed:
                run.supervised = plan.supervisors
        sim_host.end_orphans(machine, process)
        for one in host.cleanup_processes:
            if process.killed and not plan.cleanup:
                one.close()
            elif not one.dismissed or one.left:
                if process.killed and plan.second_run_s is not None:
                    self._second_run(process, other_user=plan.other_user)
                self._keep(plan, process)
                one.close()

    def _keep(self, plan: SessionPlan, process: SimProcess) -> None:
        """Let the cleanup process give back, again and again until it could, as `cleanup.main` does."""
        machine, crash = self.machine, plan.cleanup_crash
        for pause_s in (0.01, 0.2, 1.0, 5.0, 30.0, 60.0):
            machine.advance(machine.now_s + pause_s)
            refused: list[str] = []
            cleaner = self._process("cleanup", crash=crash)
            error = cleaner.run(lambda: refused.extend(cleanup.restore().refused))  # noqa: B023 (it runs at once)
            if cleaner.killed:
                return
            if error is not None:
                machine.violate(f"the cleanup process ended by {error!r}")
            if not refused:
                self.invariants.cleaned(process)
                return

    def _restore_late(self) -> None:
        """Repair the machine, do what `heshare restore` does, and look whether anything is left then."""
        machine = self.machine
        machine.repair()
        machine.advance(machine.now_s + 100.0)
        self._process("restore").run(cleanup.restore)
        self.invariants.nothing_left()


def simulate(seed: int, broken: str = "") -> Outcome:
    """Return what happens under a seed, as `Simulation.run`."""
    return run_schedule(Schedule.of(seed), broken)


def run_schedule(schedule: Schedule, broken: str = "") -> Outcome:
    """Return what happens under a schedule, as `Simulation.run`."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="heshare-sim-", dir=memory if memory.is_dir() else None) as root:
        return Simulation(schedule, Path(root)).run(broken)


def crash_at_every_write(step: int = 1) -> int:
    """Kill a run at each change of a file, or every `step`-th: before, amid and after it. Return how many there were.

    Raises:
        AssertionError: an invariant was violated.
    """
    crashes = 0
    for where in WHERE:
        change = 1
        while True:
            outcome = run_schedule(Schedule.crash_at(change, where))
            assert not outcome.violations, (where, change, outcome.violations)
            if not any("killed" in line for line in outcome.history):
                break
            crashes += 1
            change += step
    return crashes
