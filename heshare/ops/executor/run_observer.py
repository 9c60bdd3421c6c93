"""Observer of a run on real GPUs: journal its decisions, results and energy, wait for processes, show progress."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import connection

from heshare.devices.device import TaskFailure
from heshare.lab.tenants.measured_work import MeasuredWork
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.job_tasks import FREE_ATTEMPTS
from heshare.ops.executor.learning import Learning
from heshare.ops.executor.local_device import LocalExecutorDevice
from heshare.ops.executor.lost_device import LostDevice
from heshare.ops.executor.run_control import RunSteering
from heshare.ops.jobs import entries
from heshare.ops.jobs.entries import known
from heshare.ops.jobs.run_journal import RunJournal
from heshare.ops.jobs.run_state import MPS_ENDED, JobHistory
from heshare.policies.policy import Action, Event, Migrate, Pause, SetClock, Start, Wait
from heshare.running.observer import Observer
from heshare.running.timeline import Interval
from heshare.world.task import Task

SAMPLE_S = 10.0
"""How often the energy accounts are journalled, s."""
HEAR_S = 1.0
"""How often the operator's requests are looked for, and metrics brought up to date, s."""
IDLE_READ_S = 5.0
"""How often a GPU on which nothing runs is read for metrics, s."""


class JournalingObserver(Observer):
    """The observer that keeps a run's journal, and adds its results to the `history` of earlier sessions."""

    def __init__(
        self,
        journal: RunJournal,
        jobs: Mapping[int, AssignedJob],
        devices: Sequence[LocalExecutorDevice | LostDevice],
        now_s: Callable[[], float],
        history: JobHistory,
        steering: RunSteering,
        learning: Learning,
    ) -> None:
        self._journal, self._jobs, self._devices, self._now_s = journal, jobs, devices, now_s
        self._history, self._count, self._failed = history, len(history.over) + len(jobs), 0
        self._steering, self._next_line_s = steering, 0.0
        self._next_sample_s, self._next_metrics_s = SAMPLE_S, 0.0
        self._acted = False
        self._learning = learning
        self._planned: dict[int, tuple[Task, str]] = {}

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
            # Energy before the first action, that of planning included, is no job's work.
            self._acted = True
            self.sample(fresh=True)
        if event.tasks or any(not isinstance(action, Wait) for action in actions):
            self._journal.append(decision)
        for task in (action.task for action in actions if isinstance(action, Start | Migrate)):
            self._planned[task] = self._learning.tasks[task], self._learning.source(task)

    def on_interval_end(self, interval: Interval, failed: TaskFailure | None) -> None:
        """Journal how an attempt ended; it counts once the next decision is on disk."""
        job = self._jobs[interval.task]
        attempt = self._devices[interval.gpu].ended.pop(interval.task)
        also = [
            entries.Part(index, other.energy_j, other.energy_model_j)
            for index, device in enumerate(self._devices)
            if (other := device.ended.pop(interval.task, None)) is not None
        ]
        task, source = self._planned[interval.task]
        measured = attempt.measured
        charged = failed is not None and failed.charged
        again = failed is not None and self._may_be_retried(job, failed)
        entry = entries.End(
            job=job.key,
            gpu=interval.gpu,
            outcome=interval.outcome,
            start_s=interval.start_s,
            end_s=interval.end_s,
            began_s=known(attempt.began_s),
            released_s=known(attempt.released_s),
            mps_pct=interval.mps_pct,
            iterations=interval.iterations,
            attempt=attempt.number,
            energy_j=attempt.energy_j,
            energy_model_j=attempt.energy_model_j,
            gpu_j=attempt.gpu_j,
            exit_code=attempt.exit_code,
            sm_mhz=known(attempt.sm_mhz),
            limits=tuple(attempt.limits),
            log=attempt.log,
            reason="" if failed is None else failed.reason,
            charged=charged,
            again=again,
            also=tuple(also),
            predicted_s=task.iterations * measured.ran_s / measured.iterations if measured.iterations > 0 else None,
            predicted_by=source,
        )
        self._journal.append(entry, sync=False)
        self._history.add(entry)
        self._learn(task, entry, measured)
        self._failed += failed is not None and not again
        if failed is not None:
            then = "it is tried again" if again else "it is not tried again"
            text = f"attempt {attempt.number} failed: {failed.reason}; {then}"
            event = "job-retry" if again else "job-failed"
            self._steering.log.tell(event, text, gpu=self._devices[interval.gpu].uuid, job=job.key)

    def revised(self) -> Iterable[Task]:
        """Return the tasks that are planned otherwise by what was measured since the last call."""
        return self._learning.take_revised()

    def _learn(self, task: Task, end: entries.End, measured: MeasuredWork) -> None:
        device = self._devices[end.gpu]
        learned = self._learning.add(task, end, measured, device.gpu)
        if learned is not None:
            self._journal.append(learned, sync=False)
            predicted = f"{end.predicted_s:.3g} s were predicted" if end.predicted_s else "nothing was predicted"
            text = f"took {learned.duration_s:.3g} s where {predicted}: its command is planned by that from now on"
            self._steering.log.tell("learned", text, gpu=device.uuid, job=end.job)

    def should_retry(self, failed: TaskFailure) -> bool:
        """Return whether the job, whose failure `on_interval_end` has counted, had retries left."""
        return self._jobs[failed.task_id].key not in self._history.over

    def wait(self, until_s: float) -> Iterable[int]:
        """Wait for the time or for news of a device; meanwhile journal the accounts, show progress, hear requests."""
        self._hear()
        owners = {ending: index for index, device in enumerate(self._devices) for ending in device.descriptors()}
        while (left_s := until_s - self._now_s()) > 0:
            ready = set(connection.wait(owners, min(left_s, HEAR_S)))
            self._hear()
            if self._now_s() >= self._next_sample_s:
                self._next_sample_s = self._now_s() + SAMPLE_S
                self.sample()
            self._update_metrics()
            self._show_progress()
            if ready:
                return sorted({index for descriptor, index in owners.items() if descriptor in ready})
        return ()

    def sample(self, *, sync: bool = False, fresh: bool = False) -> None:
        """Journal the energy accounts and new notes; `fresh` reads the GPUs first."""
        if fresh:
            for device in self._devices:
                device.update(force=True)
        self._journal.append(self._accounts(), sync=sync)
        self.take_notes(sync=sync)

    def _accounts(self) -> entries.Sample:
        accounts = [
            entries.Account(
                energy_j=device.latest.energy_j,
                idle_j=device.idle_j,
                shares_j=self._by_key(device.shares_j()),
                model_shares_j=self._by_key(device.model_shares_j()),
                sm_mhz=known(device.latest.sm_mhz),
                power_w=device.latest.power_w,
                state=device.state,
                requested_mhz=device.requested_mhz if len(device.gpu.clocks_mhz) > 1 else None,
                drained=device.drained,
                estimated_j=device.estimated_j,
                unknown_s=device.unknown_s,
            )
            for device in self._devices
        ]
        return entries.Sample(self._now_s(), tuple(accounts))

    def _update_metrics(self) -> None:
        now_s = self._now_s()
        if self._steering.meter is None or now_s < self._next_metrics_s:
            return
        self._next_metrics_s = now_s + HEAR_S
        for device in self._devices:
            if not device.running and now_s - device.latest.time_s >= IDLE_READ_S:
                device.update()
        self._steering.meter(self._accounts())

    def take_notes(self, *, sync: bool = False) -> None:
        """Tell the operator the devices' new notes, and journal them."""
        for index, device in enumerate(self._devices):
            notes = list(device.notes)
            device.notes.clear()
            for note in notes:
                event, said = getattr(note, "event", "note"), getattr(note, "said", note)
                self._steering.log.tell(event, said, gpu=device.uuid)
                self._journal.append(entries.Note(str(note), index, event), sync=sync)

    def finish(self) -> None:
        try:
            self.sample(sync=True)
        finally:
            self._show_progress(last=True)

    def _hear(self) -> None:
        self.take_notes()
        idle = not any(device.running or device.ended for device in self._devices)
        self._steering.hear(idle=idle)

    def _may_be_retried(self, job: AssignedJob, failed: TaskFailure) -> bool:
        if failed.kind == MPS_ENDED:
            return True
        if failed.charged:
            return self._history.charged[job.key] < job.spec.retries
        return self._history.free[job.key] < FREE_ATTEMPTS

    def _show_progress(self, *, last: bool = False) -> None:
        log, now_s = self._steering.log, self._now_s()
        if now_s < self._next_line_s and not last:
            return
        over = len(self._history.over)
        self._next_line_s = now_s + (1.0 if log.interactive else 30.0)
        running = len({task for device in self._devices for task in device.attempts()})
        power_w = sum(device.latest.power_w for device in self._devices if not device.lost)
        energy_j = sum(device.latest.energy_j for device in self._devices)
        text = (
            f"{now_s:.0f} s: {self._count - over - running} waiting, {running} running, {over - self._failed} done, "
            f"{self._failed} failed; {power_w:.0f} W now, {energy_j / 1e3:.1f} kJ so far"
        )
        log.show(text, last=last)

    def _by_key(self, values: Mapping[int, float]) -> dict[str, float]:
        return {self._jobs[task].key: value for task, value in values.items()}

    def _key(self, task: int) -> str:
        return self._jobs[task].key if task in self._jobs else f"(task {task})"


def journalled(action: Action, key: Callable[[int], str]) -> entries.JournalledAction:
    """Return an action as a journal keeps it, with jobs by their keys."""
    match action:
        case Start():
            return entries.Started(key(action.task), action.gpu, action.mps_pct, action.batch_size, action.also)
        case Migrate():
            return entries.Migrated(key(action.task), action.gpu, action.mps_pct, action.batch_size, action.also)
        case SetClock():
            return entries.Clocked(action.gpu, action.sm_mhz)
        case Pause():
            return entries.Paused(key(action.task))
        case Wait():
            return entries.Waited(action.until_s)
