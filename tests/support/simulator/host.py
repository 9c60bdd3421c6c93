"""The simulated machine in the place of `heshare.ops.executor.host.Host`, and of what else reaches the real one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

from support.simulator.machine import Card, Daemon, JobPlan, JobRun, Machine
from support.simulator.process import SimProcess

from heshare.ops import cleanup, clocks, mps
from heshare.ops.executor import executor_device, gpu_lock, job_on_gpu, local_gpus
from heshare.ops.executor.host import Host
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.jobs import run_journal
from heshare.ops.mps import MPS, MpsSession
from heshare.ops.nvml.binding import NoReplyError, NoSuchGpuError, NvmlError, NvmlGpu
from heshare.ops.nvml.card_survey import SurveyedCard
from heshare.ops.nvml.reader_process import METHODS
from heshare.ops.state import state_file
from heshare.ops.workers.launcher import Launcher, Worker
from heshare.shared import file_lock, processes

EPOCH = 1_900_000_000.0
"""The wall time at which a simulation begins: all real files are old by then."""
_CALL_S, _START_S, _TICK_S = 0.001, 0.01, 1e-6
_SUPERVISOR_S, _CLEANUP_S = 2.0, 3.0
"""How long a job may take to end after SIGTERM of a supervisor without an executor, and of a cleanup, s."""


class SimClock:
    """The time of a run, which begins now."""

    def __init__(self, process: SimProcess) -> None:
        self._process, self._origin_s = process, process.machine.now_s

    def now_s(self) -> float:
        return self._process.machine.now_s - self._origin_s

    def wait_until(self, time_s: float) -> float:
        self._process.advance(self._origin_s + time_s)
        self._process.advance(self._process.machine.now_s + _TICK_S)
        return self.now_s()


class SimReader:
    """Reads the machine's cards; one that hangs does not reply before its deadline."""

    def __init__(self, process: SimProcess, deadline_s: float) -> None:
        self.process, self.deadline_s = process, deadline_s
        self.asked_s: dict[Card, float] = {}

    def card(self, which: str) -> SimRemoteCard:
        self.process.check()
        return SimRemoteCard(self, which)

    def hangs(self, card: Card, wait_s: float) -> bool:
        """Wait for a card, at most so long; return whether it has not replied then."""
        machine = self.process.machine
        self.asked_s.setdefault(card, machine.now_s)
        self.process.advance(machine.now_s + _CALL_S)
        until_s = machine.now_s + wait_s
        self.process.advance(until_s, lambda: machine.now_s >= card.hung_until_s)
        if machine.now_s < card.hung_until_s:
            return True
        del self.asked_s[card]
        return False

    def close(self) -> None:
        """There is no process to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimRemoteCard(NvmlGpu):
    """A card with the methods of `RemoteCard`."""

    def __init__(self, reader: SimReader, uuid: str) -> None:
        self.label, self._reader, self._uuid = f"GPU {uuid}", reader, uuid

    @property
    def _card(self) -> Card:
        cards = self._reader.process.machine.cards
        if self._uuid not in cards:
            raise NoSuchGpuError(f"{self.label}: not found")
        return cards[self._uuid]

    @property
    def silent_s(self) -> float:
        asked_s = self._reader.asked_s.get(self._card, math.inf)
        silent_s = self._reader.process.machine.now_s - asked_s
        return silent_s if silent_s >= self._reader.deadline_s else 0.0

    def ask(self, name: str, *arguments: Any) -> Any:
        if self._reader.hangs(self._card, self._reader.deadline_s):
            raise NoReplyError(f"{self.label}: NVML has not returned from {name}.")
        return self._card.call(name, *arguments)

    def poll(self, calls: Sequence[Sequence[Any]], *, wait_s: float = 0.2) -> list[Any] | None:
        waited = self._card in self._reader.asked_s
        if self._reader.hangs(self._card, 0.0 if waited else wait_s):
            return None
        answers: list[Any] = []
        for name, *arguments in calls:
            try:
                answers.append([self._card.call(name, *arguments)])
            except NvmlError as error:
                answers.append([type(error).__name__, str(error)])
        return answers


def _forwarded(name: str) -> Callable[..., Any]:
    return lambda self, *arguments: self.ask(name, *arguments)


for _name in METHODS:
    setattr(SimRemoteCard, _name, _forwarded(_name))


class SimMps(MpsSession):
    """An MPS session whose daemon is one of the machine's."""

    def __init__(self, process: SimProcess, uuid: str, *, works: bool) -> None:
        super().__init__(uuid)
        self._process, self._works = process, works
        self._own: Daemon | None = None

    def start(self) -> None:
        self._process.check()
        mps.sweep()
        if not self._works:
            self._without("there is no MPS here")
            return
        self._process.advance(self._process.machine.now_s + 0.05)
        machine = self._process.machine
        self._own = Daemon(machine.cards[self.gpu_uuid], self._process)
        machine.daemons.append(self._own)
        self.sharing, self.reason = MPS, ""

    def stop(self) -> None:
        self._process.check()
        self._process.releasing()
        if self._own is not None:
            self._process.machine.daemons.remove(self._own)
            self._own = None
        if self.sharing == MPS:
            self._without("the session has ended")

    def alive(self) -> bool:
        return self.sharing != MPS or (self._own is not None and self._own.alive)


class SimCleanupProcess:
    """The cleanup process of an executor, which has the locks too; it runs once the executor has ended."""

    def __init__(self, process: SimProcess, locks: Sequence[int]) -> None:
        self._process = process
        self.locks = [os.dup(lock) for lock in locks]
        self.dismissed = self.left = False

    def dismiss(self, *, all_released: bool = True) -> None:
        self._process.check()
        self.dismissed, self.left = True, not all_released
        if all_released:
            self.close()

    def close(self) -> None:
        while self.locks:
            os.close(self.locks.pop())


class SimWorker:
    """The process of a job below its supervisor, as `CommandWorker`."""

    ready, time_s, excess = True, math.nan, ""

    def __init__(self, run: JobRun, iterations: float, grace_s: float, log: Path) -> None:
        self.run, self.log = run, log
        self.pid = run.process.machine.runs.index(run) + 1
        self.exit_code: int | None = None
        self._iterations, self._grace_s = iterations, grace_s

    @property
    def finished(self) -> bool:
        return self.exit_code == 0

    @property
    def failure(self) -> str | None:
        return None if self.exit_code in (None, 0) else f"ended, exit code {self.exit_code}"

    @property
    def done(self) -> float:
        return self._iterations if self.finished else 0.0

    def go(self) -> None:
        """A command begins when it is started."""

    def poll(self) -> None:
        self.run.process.check()
        self.exit_code = self.run.code

    def begin_stop(self) -> None:
        self.run.process.check()
        self.run.process.machine.ask_to_end(self.run, self._grace_s)

    def stop(self) -> float:
        self.begin_stop()
        self.run.process.advance(math.inf, lambda: not self.run.alive)
        self.exit_code = self.run.code
        return self.done


class SimThread:
    """The thread that ends a job: that takes virtual time, and nobody waits for it before `join`."""

    def __init__(self, target: Callable[[], object], daemon: bool) -> None:
        worker: SimWorker = target.__self__  # type: ignore[attr-defined]
        self._worker = worker

    def start(self) -> None:
        self._worker.begin_stop()

    def is_alive(self) -> bool:
        return self._worker.run.alive

    def join(self) -> None:
        self._worker.stop()


class _NoModels(Launcher):
    def start(self, task_id: int, *arguments: Any, **options: Any) -> Worker:
        raise AssertionError("the simulated jobs are commands")


class SimHost(Host):
    """The machine as a process of an executor finds it."""

    def __init__(self, process: SimProcess, plans: Mapping[str, JobPlan], *, mps_works: bool) -> None:
        self._process, self._machine, self._plans, self._mps_works = process, process.machine, plans, mps_works
        self.cleanup_processes: list[SimCleanupProcess] = []
        self.waiting: Callable[[], None] = lambda: None

    def clock(self) -> SimClock:
        return SimClock(self._process)

    def survey(self) -> Sequence[SurveyedCard]:
        return [SurveyedCard(index, uuid) for index, uuid in enumerate(self._machine.cards)]

    def reader(self, deadline_s: float) -> Any:
        return SimReader(self._process, deadline_s)

    def cleanup_process(self, locks: Sequence[int], report: Callable[[str], object]) -> Any:
        self._process.check()
        self.cleanup_processes.append(SimCleanupProcess(self._process, locks))
        return self.cleanup_processes[-1]

    def mps(self, uuid: str) -> MpsSession:
        return SimMps(self._process, uuid, works=self._mps_works)

    def models_lack(self) -> str:
        return ""

    def models(self, session: MpsSession, outputs: Path) -> Launcher:
        return _NoModels()

    def command(
        self, job: AssignedJob, log: Path, iterations: float, variables: Mapping[str, str], grace_s: float
    ) -> Any:
        machine = self._machine
        self._process.advance(machine.now_s + _START_S)
        card, attempt = machine.cards[variables["CUDA_VISIBLE_DEVICES"]], int(variables["HESHARE_ATTEMPT"])
        token = variables[processes.MARK]
        run = JobRun(job.key, attempt, self._plans[job.key], card, self._process, token)
        machine.start_job(run)
        return SimWorker(run, iterations, grace_s, log)

    def wait(self, descriptors: Collection[int], timeout_s: float) -> list[Any]:
        watched = {descriptor: _watched[descriptor] for descriptor in descriptors}
        self.waiting()
        done = lambda: any(not run.alive for run in watched.values())  # noqa: E731
        self._process.advance(self._machine.now_s + max(timeout_s, _TICK_S), done)
        return [descriptor for descriptor, run in watched.items() if not run.alive]


_watched: dict[int, JobRun] = {}
"""The job that each descriptor of a process belongs to."""


class _LockTime:
    """The time of waits for file locks, which take no time of the machine: nobody gives a lock back meanwhile."""

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._now_s, self.time = 0.0, wall_s

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, time_s: float) -> None:
        self._now_s += time_s


def sweep(machine: Machine) -> None:
    """End the MPS daemons of processes that have ended, as `mps.sweep`."""
    for daemon in list(machine.daemons):
        if not daemon.process.alive or daemon.process.killed:
            machine.daemons.remove(daemon)


def end_marked(machine: Machine, token: str) -> int:
    """End the jobs of a run, as `processes.end_marked`."""
    process, found = machine.process, [run for run in machine.runs if run.alive and run.token == token]
    for run in found:
        machine.ask_to_end(run, _CLEANUP_S)
    assert process is not None
    process.advance(math.inf, lambda: not any(run.alive for run in found))
    return len(found)


def end_orphans(machine: Machine, process: SimProcess) -> None:
    """The supervisors of a process's jobs notice that it has ended."""
    for run in machine.runs:
        if run.alive and run.process is process and run.supervised:
            machine.ask_to_end(run, _SUPERVISOR_S)


@contextmanager
def linked(machine: Machine, wall_s: Callable[[], float]) -> Iterator[None]:
    """Have the modules that reach the real machine reach this one within the `with`."""

    def reader() -> SimReader:
        assert machine.process is not None
        return SimReader(machine.process, 2.0)

    def pidfd(pid: int) -> int:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        _watched[descriptor] = machine.runs[pid - 1]
        return descriptor

    numbers = iter(range(10**6))
    lock_time: Any = _LockTime(wall_s)
    patches = [
        mock.patch.object(clocks, "CardReader", reader),
        mock.patch.object(executor_device, "pidfd", pidfd),
        mock.patch.object(job_on_gpu, "Thread", SimThread),
        mock.patch.object(cleanup, "end_marked", side_effect=lambda token: end_marked(machine, token)),
        mock.patch.object(mps, "sweep", side_effect=lambda: sweep(machine)),
        mock.patch.object(local_gpus, "uuid4", side_effect=lambda: SimpleNamespace(hex=f"{next(numbers):032x}")),
        mock.patch.object(run_journal, "time", SimpleNamespace(time=wall_s)),
    ]
    patches += [mock.patch.object(module, "time", lock_time) for module in (file_lock, gpu_lock, state_file, clocks)]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
        _watched.clear()
