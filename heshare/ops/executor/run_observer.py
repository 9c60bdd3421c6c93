"""Observer of a run on real GPUs: journals decisions, results and energy, waits for processes, prints progress."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from heshare.devices.device import TaskFailure
from heshare.ops.executor.executor_device import ExecutorDevice
from heshare.ops.executor.host import Host
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.job_tasks import FREE_ATTEMPTS
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.jobs import entries
from heshare.ops.jobs.entries import known
from heshare.ops.jobs.run_journal import RunJournal
from heshare.ops.jobs.run_state import MPS_ENDED, RunState
from heshare.policies.policy import Action, Event, Migrate, Pause, SetClock, Start, Wait
from heshare.running.observer import Observer
from heshare.running.timeline import Interval

SAMPLE_S = 10.0
"""Interval at which the energy accounts are journalled, s."""
HEAR_S = 1.0
"""Longest wait without a check for new notes, s."""
_LINE_S, _LIVE_LINE_S = 30.0, 1.0


class JournalingObserver(Observer):
    """The observer that writes a run's journal and updates its `state`.

    Args:
        journal: of the run.
        state: of the run so far; every entry is added to it.
        jobs: the job of each task.
        devices: the GPUs.
        now_s: the time of the session, s.
        log: prints events and progress.
        host: waits for processes.
    """

    def __init__(
        self,
        journal: RunJournal,
        state: RunState,
        jobs: Mapping[int, AssignedJob],
        devices: Sequence[ExecutorDevice],
        now_s: Callable[[], float],
        log: OperatorLog,
        host: Host,
    ) -> None:
        self._journal, self._state, self._jobs, self._devices = journal, state, jobs, devices
        self._now_s, self._log, self._host = now_s, log, host
        self._next_line_s, self._next_sample_s = 0.0, SAMPLE_S
        self._acted = False

    def note(self, text: str, gpu: int | None = None, *, sync: bool = False) -> None:
        """Log and journal a message; `gpu` is an index."""
        self._log.event(text, gpu="" if gpu is None else self._devices[gpu].uuid)
        self._append(entries.Note(text, gpu), sync=sync)

    def begin(self, session: entries.Session) -> None:
        """Journal the begin of a session, before anything is started."""
        self._append(session)
        self._take_notes(sync=False)

    # Callbacks of the run.

    def on_decision(self, event: Event, actions: Sequence[Action]) -> None:
        """Journal a decision, and all results before it, before any of its actions is executed."""
        decision = entries.Decision(
            t=event.time_s,
            actions=tuple(journalled(action, self._key) for action in actions),
            decided_s=self._now_s(),
            event=event.kind.name.lower(),
            jobs=tuple(self._jobs[task].key for task in event.tasks),
            gpu=event.gpu,
        )
        if actions and not self._acted:
            # Energy before the first action, planning included, belongs to no job.
            self._acted = True
            self._sample(fresh=True)
        if event.tasks or any(not isinstance(action, Wait) for action in actions):
            self._append(decision)

    def on_interval_end(self, interval: Interval, failed: TaskFailure | None) -> None:
        """Journal the end of an attempt; it counts once the next decision is on disk."""
        job, device = self._jobs[interval.task], self._devices[interval.gpu]
        attempt = device.ended[interval.task]
        again = failed is not None and self._may_be_retried(job, failed)
        end = entries.End(
            job=job.key,
            gpu=interval.gpu,
            outcome=interval.outcome,
            end_s=interval.end_s,
            iterations=interval.iterations,
            energy_j=attempt.energy_j,
            account=self._account(device, without=interval.task),
            start_s=interval.start_s,
            began_s=known(attempt.began_s),
            released_s=known(attempt.released_s),
            mps_pct=interval.mps_pct,
            attempt=attempt.number,
            exit_code=attempt.exit_code,
            sm_mhz=known(attempt.sm_mhz),
            limits=attempt.limits,
            log=attempt.log,
            reason="" if failed is None else failed.reason,
            charged=failed is not None and failed.charged,
            again=again,
        )
        self._append(end, sync=False)
        # Only now: an attempt whose end could not be journalled (a full disk, a signal) stays in the account.
        del device.ended[interval.task]

        if failed is not None:
            then = "it is tried again" if again else "it is not tried again"
            text = f"attempt {attempt.number} failed: {failed.reason}; {then}"
            self._log.event(text, gpu=device.uuid, job=job.key)

    def should_retry(self, failed: TaskFailure) -> bool:
        """Return whether a failed job is retried; `on_interval_end` has journalled the failure."""
        return not self._state.jobs[self._jobs[failed.task_id].key].over

    def wait(self, until_s: float) -> Iterable[int]:
        """Wait until a time or the end of a process; journal the accounts and print progress in between."""
        self._take_notes(sync=False)
        owners = {ending: index for index, device in enumerate(self._devices) for ending in device.descriptors()}
        while (left_s := until_s - self._now_s()) > 0:
            ready = set(self._host.wait(owners.keys(), min(left_s, HEAR_S)))
            self._take_notes(sync=False)
            if self._now_s() >= self._next_sample_s:
                self._next_sample_s = self._now_s() + SAMPLE_S
                self._sample()
            self._show_progress()
            if ready:
                return sorted({index for descriptor, index in owners.items() if descriptor in ready})
        return ()

    def finish(self) -> None:
        """Journal the last accounts of the session and sync them to disk."""
        try:
            # Ending the jobs of the last GPU may have taken long.
            self._sample(sync=True, fresh=True)
            self._take_notes(sync=True)
        finally:
            self._show_progress(last=True)

    # The journal.

    def _append(self, entry: entries.Entry, *, sync: bool = True) -> None:
        self._journal.append(entry, sync=sync)
        self._state.add(entry)

    def _sample(self, *, sync: bool = False, fresh: bool = False) -> None:
        """Journal the accounts; `fresh` reads the GPUs first."""
        if fresh:
            for device in self._devices:
                device.update(force=True)
        accounts = tuple(self._account(device) for device in self._devices)
        self._append(entries.Sample(self._now_s(), accounts), sync=sync)

    def _account(self, device: ExecutorDevice, *, without: int | None = None) -> entries.Account:
        """Return the present account of a GPU; at the end of an attempt `without` its task."""
        latest = device.latest
        shares_j = {self._jobs[task].key: share_j for task, share_j in device.shares_j().items() if task != without}
        return entries.Account(
            energy_j=latest.energy_j,
            idle_j=device.idle_j,
            shares_j=shares_j,
            counter_j=known(device.counter_j),
            sm_mhz=known(latest.sm_mhz),
            power_w=None if device.lost else latest.power_w,
            state=device.state,
            requested_mhz=device.requested_mhz if len(device.gpu.clocks_mhz) > 1 else None,
            drained=device.drained,
            estimated_j=device.estimated_j,
            unknown_s=device.unknown_s,
        )

    def _take_notes(self, *, sync: bool) -> None:
        """Log and journal the new notes of the devices."""
        for index, device in enumerate(self._devices):
            notes = list(device.notes)
            device.notes.clear()
            for text in notes:
                self.note(text, index, sync=sync)

    def _may_be_retried(self, job: AssignedJob, failed: TaskFailure) -> bool:
        state = self._state.jobs[job.key]
        if failed.kind == MPS_ENDED:
            return True
        return state.charged < job.spec.retries if failed.charged else state.free < FREE_ATTEMPTS

    def _show_progress(self, *, last: bool = False) -> None:
        now_s = self._now_s()
        if now_s < self._next_line_s and not last:
            return
        self._next_line_s = now_s + (_LIVE_LINE_S if self._log.interactive else _LINE_S)

        counts = self._state.counts()
        power_w = sum(device.latest.power_w for device in self._devices if not device.lost)
        energy_j = sum(device.latest.energy_j for device in self._devices)
        text = (
            f"{now_s:.0f} s: {counts['waiting']} waiting, {counts['running']} running, {counts['completed']} done, "
            f"{counts['failed']} failed; {power_w:.0f} W now, {energy_j / 1e3:.1f} kJ so far"
        )
        self._log.show(text, last=last)

    def _key(self, task: int) -> str:
        return self._jobs[task].key if task in self._jobs else f"(task {task})"


def journalled(action: Action, key: Callable[[int], str]) -> entries.JournalledAction:
    """Return an action as a journal entry, with jobs by their keys."""
    match action:
        case Start():
            return entries.Started(key(action.task), action.gpu, action.mps_pct, action.batch_size)
        case Migrate():
            return entries.Migrated(key(action.task), action.gpu, action.mps_pct, action.batch_size)
        case SetClock():
            return entries.Clocked(action.gpu, action.sm_mhz)
        case Pause():
            return entries.Paused(key(action.task))
        case Wait():
            return entries.Waited(action.until_s)
