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
from heshare.ops.nvml.binding import GpuLostError, NvmlError
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


@contextmanager
def both(one: Any, other: Any) -> Iterator[None]:
    with one, other:
        yield


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


# Locks, signals and the end of a run.


def _lock_ignored() -> Any:
    return mock.patch.object(GpuLock, "acquire", return_value=True)


def _sigterm_ignored() -> Any:
    return mock.patch.object(InterruptHandler, "__call__", _nothing)


def _stop_ignored() -> Any:
    return mock.patch.object(run_status, "stop", _nothing)


def _signal_during_release() -> Any:
    return mock.patch.object(InterruptHandler, "ignore", _nothing)


def _jobs_not_ended() -> Any:
    # The loop ends what is left as well.
    return both(
        mock.patch.object(ExecutorDevice, "stop_all", _nothing),
        mock.patch.object(import_module("heshare.running.run"), "_abandon", _nothing),
    )


def _cleanup_without_locks() -> Any:
    opens = LocalGpus._open

    def opened(gpus: LocalGpus, exits: ExitStack) -> None:
        start = gpus.host.cleanup_process
        with mock.patch.object(gpus.host, "cleanup_process", lambda locks, report: start([], report)):
            opens(gpus, exits)

    return mock.patch.object(LocalGpus, "_open", opened)


# Notes, clocks, MPS and what a cleanup does.


def _clock_not_given_back() -> Any:
    return mock.patch.object(ClockLock, "close", _nothing)


def _clock_note_removed_early() -> Any:
    def release(clock: ClockLock) -> None:
        if clock._state_file is not None:
            card = clock._card
            clock._remove_state_file()
            card.unlock_clock()

    return mock.patch.object(ClockLock, "release", release)


def _clock_locked_before_its_note() -> Any:
    claim = clocks._write_state_file

    def claimed(card: Any, uuid: str, sm_mhz: int) -> StateFile:
        card.lock_clock(sm_mhz)
        return claim(card, uuid, sm_mhz)

    return mock.patch.object(clocks, "_write_state_file", claimed)


def _note_of_the_run_not_published() -> Any:
    return mock.patch.object(RunStateFile, "publish", _nothing)


def _no_cleanup_at_the_start() -> Any:
    return mock.patch.object(local_gpus, "restore", _nothing)


def _sweeps_no_mps() -> Any:
    return mock.patch.object(mps, "sweep", _nothing)


def _note_deleted_first() -> Any:
    def clean_up(note: RunStateFile) -> cleanup.CleanedRun:
        note.path.unlink(missing_ok=True)
        ended = cleanup.end_marked(note.token)
        mps.sweep()
        return cleanup.CleanedRun(note.folder, ended)

    return mock.patch.object(cleanup, "_clean_up", clean_up)


def _marked_processes_left() -> Any:
    return mock.patch.object(cleanup, "end_marked", return_value=0)


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


def _short_write_is_whole() -> Any:
    def append(lines: Journal, entry: Any, *, sync: bool = True) -> None:
        line = journal.journal_line(entry)
        lines._cut()
        journal.os.write(lines._lock.descriptor, line)
        if sync:
            journal.os.fsync(lines._lock.descriptor)
        lines._end += len(line)

    return mock.patch.object(Journal, "append", append)


def _torn_line_kept() -> Any:
    def cut(lines: Journal) -> None:
        journal.os.lseek(lines._lock.descriptor, 0, journal.os.SEEK_END)

    return mock.patch.object(Journal, "_cut", cut)


def _wall_time_backwards() -> Any:
    return mock.patch.object(run_journal, "session_start", side_effect=lambda entries: (run_journal.time.time(), 0.0))


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


def _one_retry_too_many() -> Any:
    def may_be_retried(observer: JournalingObserver, job: Any, failed: TaskFailure) -> bool:
        state = observer._state.jobs[job.key]
        if failed.kind == MPS_ENDED:
            return True
        return state.charged <= job.spec.retries if failed.charged else state.free < job_tasks.FREE_ATTEMPTS

    return mock.patch.object(JournalingObserver, "_may_be_retried", may_be_retried)


def _failure_is_success() -> Any:
    def finished(job: JobOnGpu) -> bool:
        return job.worker is not None and job.worker.exit_code is not None and job.stopping is None  # type: ignore[attr-defined]

    return mock.patch.object(JobOnGpu, "finished", property(finished))


# Energy.


def _counter_jump_counts() -> Any:
    return mock.patch.object(energy_account, "HEADROOM", math.inf)


def _killed_jobs_lose_nothing() -> Any:
    def end_session(state: RunState) -> None:
        for gpu in state.gpus:
            gpu.account = msgspec.structs.replace(gpu.account, shares_j={})
        for job in state.running:
            job.placed = None

    return mock.patch.object(RunState, "end_session", end_session)


def _between_from_the_begin() -> Any:
    begin = GpuState.begin_session

    def begun(gpu: GpuState, opened: Any, counter_j: float | None, *, first: bool) -> None:
        if not first and counter_j is not None and gpu._first_counter_j is not None:
            gpu.account = msgspec.structs.replace(gpu.account, counter_j=gpu._first_counter_j)
        begin(gpu, opened, counter_j, first=first)

    return mock.patch.object(GpuState, "begin_session", begun)


def _no_last_account() -> Any:
    return mock.patch.object(JournalingObserver, "finish", _nothing)


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


def _lost_gpu_ignored() -> Any:
    def value(sampler: CardSampler, name: str, answer: Any, missing: Any) -> Any:
        try:
            return value_of(answer)
        except GpuLostError:
            return missing
        except NvmlError:
            return missing

    return mock.patch.object(CardSampler, "_value", value)


def _drained_gpu_ignored() -> Any:
    return mock.patch.object(ExecutorDevice, "_update_drained", _nothing)


BROKEN: dict[str, Callable[[], Any]] = {
    "the lock of a GPU is ignored": _lock_ignored,
    "SIGTERM is ignored": _sigterm_ignored,
    "stop is ignored": _stop_ignored,
    "a signal interrupts the release": _signal_during_release,
    "jobs are not ended at the end": _jobs_not_ended,
    "the cleanup process has no locks": _cleanup_without_locks,
    "a clock is never given back": _clock_not_given_back,
    "the note of a clock is removed before the clock is unlocked": _clock_note_removed_early,
    "a clock is locked before it is noted": _clock_locked_before_its_note,
    "the note of a run is not published": _note_of_the_run_not_published,
    "a run does not clean up before it starts": _no_cleanup_at_the_start,
    "a cleanup sweeps no MPS": _sweeps_no_mps,
    "a cleanup deletes its note first": _note_deleted_first,
    "a cleanup ends no processes": _marked_processes_left,
    "the journal is not synced": _not_synced,
    "a decision is journalled after its starts": _journalled_late,
    "a short write counts as whole": _short_write_is_whole,
    "a torn line stays in the journal": _torn_line_kept,
    "wall time runs backwards": _wall_time_backwards,
    "completed jobs run again": _completed_jobs_again,
    "attempts are counted from one in each session": _attempts_from_one_again,
    "one retry too many": _one_retry_too_many,
    "a failure counts as a success": _failure_is_success,
    "a jump of the counter counts": _counter_jump_counts,
    "jobs of a killed session lose no energy": _killed_jobs_lose_nothing,
    "energy between sessions is counted from the begin": _between_from_the_begin,
    "a session has no last account": _no_last_account,
    "idle energy vanishes": _idle_energy_vanishes,
    "an attempt ends without its energy": _end_without_its_energy,
    "a lost GPU is ignored": _lost_gpu_ignored,
    "a drained GPU is ignored": _drained_gpu_ignored,
}
