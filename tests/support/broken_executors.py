"""The executor, broken on purpose: each fault replaces a piece of it by a plausible mistake.

`BROKEN` has those that simulated runs must find; `NOT_SIMULATED` those in real processes, with the tests for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import msgspec

from heshare.devices.device import TaskFailure
from heshare.ops import cleanup, clocks, mps
from heshare.ops.clocks import ClockLock
from heshare.ops.executor import job_tasks, local_gpus
from heshare.ops.executor.executor_device import ExecutorDevice
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.executor.job_on_gpu import JobOnGpu
from heshare.ops.executor.local_gpus import LocalGpus
from heshare.ops.executor.run_observer import JournalingObserver
from heshare.ops.jobs import run_journal, run_status
from heshare.ops.jobs.run_state import MPS_ENDED, GpuState, RunState
from heshare.ops.nvml import energy_account
from heshare.ops.nvml.binding import NvmlError
from heshare.ops.nvml.card_sampler import CardSampler
from heshare.ops.nvml.reader_process import value_of
from heshare.ops.state.run_state_file import RunStateFile
from heshare.ops.state.state_file import StateFile
from heshare.shared import journal
from heshare.shared.journal import Journal
from heshare.shared.signals import InterruptHandler

NOT_SIMULATED = {
    "the cleanup process is never restarted": "tests/unit/ops/test_cleanup.py::test_restarted",
    "a process of NVML that hangs is never replaced": "tests/unit/ops/nvml/test_card_reader.py::test_hanging_call",
    "a job that ignores SIGTERM is not killed after the grace": "tests/unit/ops/workers/test_supervisor.py::test_stop",
    "jobs start above the power limit": "tests/unit/ops/executor/test_power_limit.py::test_above_limit",
}
"""Faults of what a simulation replaces, and the tests over real processes that find them."""


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def _replaced(owner: Any, name: str, by: Any = _nothing) -> Callable[[], Any]:
    """Return a fault that replaces an attribute, by default by a function that does nothing."""
    return lambda: mock.patch.object(owner, name, by)


# Jobs, locks and MPS.


@contextmanager
def _jobs_not_ended() -> Iterator[None]:
    # The loop ends what is left as well.
    with (
        mock.patch.object(ExecutorDevice, "stop_all", _nothing),
        mock.patch.object(import_module("heshare.running.run"), "_abandon", _nothing),
    ):
        yield


def _cleanup_without_locks() -> Any:
    opens = LocalGpus._open

    def opened(gpus: LocalGpus, exits: ExitStack) -> None:
        start = gpus.host.cleanup_process
        with mock.patch.object(gpus.host, "cleanup_process", lambda locks, report: start([], report)):
            opens(gpus, exits)

    return mock.patch.object(LocalGpus, "_open", opened)


# Notes, clocks and what a cleanup does.


def _release_note_first(clock: ClockLock) -> None:
    if clock._state_file is not None:
        card = clock._card
        clock._remove_state_file()
        card.unlock_clock()


def _clock_locked_before_its_note() -> Any:
    claim = clocks._write_state_file

    def claimed(card: Any, uuid: str, sm_mhz: int) -> StateFile:
        card.lock_clock(sm_mhz)
        return claim(card, uuid, sm_mhz)

    return mock.patch.object(clocks, "_write_state_file", claimed)


def _delete_note_first(note: RunStateFile) -> cleanup.CleanedRun:
    note.path.unlink(missing_ok=True)
    ended = cleanup.end_marked(note.token)
    mps.sweep()
    return cleanup.CleanedRun(note.folder, ended)


# The journal, and what a session continues from it.


def _not_synced() -> Any:
    append = Journal.append
    return mock.patch.object(Journal, "append", lambda lines, entry, *, sync=True: append(lines, entry, sync=False))


def _journalled_late() -> Any:
    now, held = JournalingObserver.on_decision, []

    def late(observer: JournalingObserver, event: Any, actions: Any) -> None:
        while held:
            one, *rest = held.pop()
            if one is observer:
                now(one, *rest)
        held.append((observer, event, actions))

    return mock.patch.object(JournalingObserver, "on_decision", late)


def _append_once(lines: Journal, entry: Any, *, sync: bool = True) -> None:
    line = journal.journal_line(entry)
    lines._cut()
    journal.os.write(lines._lock.descriptor, line)
    if sync:
        journal.os.fsync(lines._lock.descriptor)
    lines._end += len(line)


def _keep_torn_line(lines: Journal) -> None:
    journal.os.lseek(lines._lock.descriptor, 0, journal.os.SEEK_END)


def _completed_jobs_again() -> Any:
    remaining = job_tasks.remaining_tasks

    class _Left:
        def __init__(self, job: Any) -> None:
            self._job = job

        def __getattr__(self, name: str) -> Any:
            return False if name == "over" else getattr(self._job, name)

    return mock.patch.object(
        job_tasks, "remaining_tasks", lambda jobs, **how: remaining([_Left(job) for job in jobs], **how)
    )


def _attempts_from_one_again() -> Any:
    remaining = job_tasks.remaining_tasks

    def forgetful(jobs: Any, **how: Any) -> Any:
        tasks, assigned = remaining(jobs, **how)
        fresh = {task: job_tasks.AssignedJob(job.key, job.spec, job.index) for task, job in assigned.items()}
        return tasks, fresh

    return mock.patch.object(job_tasks, "remaining_tasks", forgetful)


def _may_be_retried_once_more(observer: JournalingObserver, job: Any, failed: TaskFailure) -> bool:
    state = observer._state.jobs[job.key]
    if failed.kind == MPS_ENDED:
        return True
    return state.charged <= job.spec.retries if failed.charged else state.free < job_tasks.FREE_ATTEMPTS


def _finished_by_any_exit(job: JobOnGpu) -> bool:
    return job.worker is not None and job.worker.exit_code is not None and job.stopping is None  # type: ignore[attr-defined]


# Energy.


def _forget_shares(state: RunState) -> None:
    for gpu in state.gpus:
        gpu.account = msgspec.structs.replace(gpu.account, shares_j={})
    for job in state.running:
        job.placed = None


def _between_from_the_begin() -> Any:
    begin = GpuState.begin_session

    def begun(gpu: GpuState, opened: Any, counter_j: float | None, *, first: bool) -> None:
        if not first and counter_j is not None and gpu._first_counter_j is not None:
            gpu.account = msgspec.structs.replace(gpu.account, counter_j=gpu._first_counter_j)
        begin(gpu, opened, counter_j, first=first)

    return mock.patch.object(GpuState, "begin_session", begun)


def _idle_energy_vanishes() -> Any:
    divide = ExecutorDevice._divide_energy

    def divided(device: ExecutorDevice) -> None:
        before_j = device.idle_j
        divide(device)
        device.idle_j = before_j

    return mock.patch.object(ExecutorDevice, "_divide_energy", divided)


def _end_without_its_energy() -> Any:
    attempt = JobOnGpu.attempt

    def attempted(job: JobOnGpu, sm_mhz: float) -> Any:
        job.energy_j = 0.0
        return attempt(job, sm_mhz)

    return mock.patch.object(JobOnGpu, "attempt", attempted)


# Faulty cards.


def _value_of_lost_card(sampler: CardSampler, name: str, answer: Any, missing: Any) -> Any:
    try:
        return value_of(answer)
    except NvmlError:  # also of a card that is lost
        return missing


BROKEN: dict[str, Callable[[], Any]] = {
    "the lock of a GPU is ignored": _replaced(GpuLock, "acquire", lambda lock: True),
    "SIGTERM is ignored": _replaced(InterruptHandler, "__call__"),
    "stop is ignored": _replaced(run_status, "stop"),
    "a signal interrupts the release": _replaced(InterruptHandler, "ignore"),
    "jobs are not ended at the end": _jobs_not_ended,
    "the cleanup process has no locks": _cleanup_without_locks,
    "a clock is never given back": _replaced(ClockLock, "close"),
    "the note of a clock is removed before the clock is unlocked": _replaced(ClockLock, "release", _release_note_first),
    "a clock is locked before it is noted": _clock_locked_before_its_note,
    "the note of a run is not published": _replaced(RunStateFile, "publish"),
    "a run does not clean up before it starts": _replaced(local_gpus, "restore"),
    "a cleanup sweeps no MPS": _replaced(mps, "sweep"),
    "a cleanup deletes its note first": _replaced(cleanup, "_clean_up", _delete_note_first),
    "a cleanup ends no processes": _replaced(cleanup, "end_marked", lambda token: 0),
    "the journal is not synced": _not_synced,
    "a decision is journalled after its starts": _journalled_late,
    "a short write counts as whole": _replaced(Journal, "append", _append_once),
    "a torn line stays in the journal": _replaced(Journal, "_cut", _keep_torn_line),
    "wall time runs backwards": _replaced(run_journal, "session_start", lambda entries: (run_journal.time.time(), 0.0)),
    "completed jobs run again": _completed_jobs_again,
    "attempts are counted from one in each session": _attempts_from_one_again,
    "one retry too many": _replaced(JournalingObserver, "_may_be_retried", _may_be_retried_once_more),
    "a failure counts as a success": _replaced(JobOnGpu, "finished", property(_finished_by_any_exit)),
    "a jump of the counter counts": _replaced(energy_account, "HEADROOM", math.inf),
    "jobs of a killed session lose no energy": _replaced(RunState, "end_session", _forget_shares),
    "energy between sessions is counted from the begin": _between_from_the_begin,
    "a session has no last account": _replaced(JournalingObserver, "finish"),
    "idle energy vanishes": _idle_energy_vanishes,
    "an attempt ends without its energy": _end_without_its_energy,
    "a lost GPU is ignored": _replaced(CardSampler, "_value", _value_of_lost_card),
    "a drained GPU is ignored": _replaced(ExecutorDevice, "_update_drained"),
}
