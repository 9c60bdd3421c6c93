"""Observer of a run on real GPUs: journal its decisions, results and energy, wait for processes, show progress."""

import math
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from heshare.devices.device import TaskFailure
from heshare.gpu.executor.gpu_set import ExecutorDevice
from heshare.gpu.executor.job_tasks import FREE_ATTEMPTS, JobHistory
from heshare.gpu.executor.run_journal import RunJournal
from heshare.gpu.workers.job_process import AssignedJob
from heshare.policies.policy import Action, Event, Migrate, Pause, SetClock, Start, Wait
from heshare.running.actions import Observer
from heshare.running.timeline import Interval

SAMPLE_S = 10.0
"""How often the energy accounts are journalled, s."""


class JournalingObserver(Observer):
    """The observer that keeps a run's journal.

    Args:
        journal: the journal.
        jobs: the jobs by task id.
        devices: the GPUs.
        now_s: the time that the devices share, s.
        history: of the run's earlier sessions.
        stream: where progress goes, or None.
    """

    def __init__(
        self,
        journal: RunJournal,
        jobs: Mapping[int, AssignedJob],
        devices: Sequence[ExecutorDevice],
        now_s: Callable[[], float],
        history: JobHistory,
        stream: TextIO | None = None,
    ) -> None:
        self._journal, self._jobs, self._devices, self._now_s = journal, jobs, devices, now_s
        self._charged, self._free = history.charged.copy(), history.free.copy()
        self._retries: dict[int, bool] = {}
        self._notes_written = [0] * len(devices)
        self._next_sample_s = SAMPLE_S
        self._acted = False
        self._progress = ProgressLine(len(history.over), len(jobs), stream)

    def on_decision(self, event: Event, actions: Sequence[Action]) -> None:
        """Journal a decision, and all results before it, before any of its actions is executed."""
        decision = {
            "t": event.time_s,
            "decided_s": self._now_s(),
            "event": event.kind.name.lower(),
            "jobs": [self._jobs[task].key for task in event.tasks],
            "gpu": event.gpu,
            "actions": [action_as_list(action, self._key) for action in actions],
        }
        if actions and not self._acted:
            # Energy before the first action, that of planning included, is no job's work.
            self._acted = True
            self.sample(fresh=True)
        if event.tasks or actions:
            self._journal.append({"decision": decision})

    def on_interval_end(self, interval: Interval, failed: TaskFailure | None) -> None:
        """Journal how an attempt ended; it counts once the next decision is on disk."""
        job = self._jobs[interval.task]
        attempt = self._devices[interval.gpu].ended.pop(interval.task)
        again = failed is not None and self._count_failure(job, failed)
        self._retries[interval.task] = again
        self._journal.append(
            {
                "end": {
                    "job": job.key,
                    "gpu": interval.gpu,
                    "outcome": interval.outcome,
                    "start_s": interval.start_s,
                    "end_s": interval.end_s,
                    "began_s": None if math.isnan(attempt.began_s) else attempt.began_s,
                    "released_s": None if math.isnan(attempt.released_s) else attempt.released_s,
                    "mps_pct": interval.mps_pct,
                    "iterations": interval.iterations,
                    "attempt": attempt.number,
                    "energy_j": attempt.energy_j,
                    "gpu_j": attempt.gpu_j,
                    "exit_code": attempt.exit_code,
                    "sm_mhz": attempt.sm_mhz,
                    "limits": list(attempt.limits),
                    "log": attempt.log,
                    "reason": "" if failed is None else failed.reason,
                    "charged": failed is not None and failed.charged,
                    "again": again,
                }
            },
            sync=False,
        )
        self._progress.count(interval.outcome, again)

    def should_retry(self, failed: TaskFailure) -> bool:
        """Return whether the job has retries left; failures that were not its fault have a limit of their own."""
        return self._retries[failed.task_id]

    def wait(self, until_s: float) -> Iterable[int]:
        """Wait for the time or for news of a device; meanwhile journal the accounts and show progress."""
        poll = select.poll()
        owners: dict[int, int] = {}
        for index, device in enumerate(self._devices):
            for descriptor in device.descriptors():
                poll.register(descriptor, select.POLLIN)
                owners[descriptor] = index
        while (left_s := until_s - self._now_s()) > 0:
            ready = poll.poll(math.ceil(min(left_s, SAMPLE_S) * 1e3))
            self._update_accounts()
            if ready:
                return sorted({owners[descriptor] for descriptor, _ in ready})
        return ()

    def sample(self, *, sync: bool = False, fresh: bool = False) -> None:
        """Journal the energy accounts and new notes; `fresh` reads the GPUs first."""
        if fresh:
            for device in self._devices:
                device.update(force=True)
        gpus = [
            {
                "energy_j": device.latest.energy_j,
                "idle_j": device.idle_j,
                "shares_j": {self._jobs[task].key: share_j for task, share_j in device.shares_j().items()},
                "sm_mhz": device.latest.sm_mhz,
                "power_w": device.latest.power_w,
            }
            for device in self._devices
        ]
        self._journal.append({"sample": {"t": self._now_s(), "gpus": gpus}}, sync=sync)
        for index, device in enumerate(self._devices):
            for note in device.notes[self._notes_written[index] :]:
                self._journal.append({"note": {"gpu": index, "text": note}}, sync=sync)
            self._notes_written[index] = len(device.notes)

    def finish(self) -> None:
        """Journal the last accounts and end the progress line."""
        self.sample(sync=True)
        self._progress.show(self._devices, self._now_s(), last=True)

    def _update_accounts(self) -> None:
        now_s = self._now_s()
        if now_s >= self._next_sample_s:
            self._next_sample_s = now_s + SAMPLE_S
            self.sample()
        self._progress.show(self._devices, now_s)

    def _count_failure(self, job: AssignedJob, failed: TaskFailure) -> bool:
        """Count a failure of a job; return whether the job is tried again."""
        counts = self._charged if failed.charged else self._free
        counts[job.key] += 1
        return counts[job.key] <= (job.spec.retries if failed.charged else FREE_ATTEMPTS)

    def _key(self, task: int) -> str:
        return self._jobs[task].key if task in self._jobs else f"(task {task})"


def action_as_list(action: Action, key: Callable[[int], str]) -> list[Any]:
    """Return an action as a journal keeps it, with jobs by their keys."""
    if isinstance(action, Start | Migrate):
        kind = "start" if isinstance(action, Start) else "migrate"
        return [kind, key(action.task), action.gpu, action.mps_pct, action.batch_size]
    if isinstance(action, SetClock):
        return ["clock", action.gpu, action.sm_mhz]
    if isinstance(action, Pause):
        return ["pause", key(action.task)]
    return ["wait", action.until_s] if isinstance(action, Wait) else [str(action)]


class ProgressLine:
    """A line about a run, rewritten every second on a terminal, written every half minute elsewhere.

    Args:
        done: jobs that were over before.
        to_do: jobs that are not.
        stream: where to, or None.
    """

    def __init__(self, done: int, to_do: int, stream: TextIO | None) -> None:
        self._done, self._failed, self._to_do, self._stream = done, 0, to_do, stream
        self._every_s = 1.0 if stream is not None and stream.isatty() else 30.0
        self._next_s = 0.0

    def count(self, outcome: str, again: bool) -> None:
        """Count an attempt that has ended."""
        if outcome == "completed":
            self._done, self._to_do = self._done + 1, self._to_do - 1
        elif outcome.startswith("failed") and not again:
            self._failed, self._to_do = self._failed + 1, self._to_do - 1

    def show(self, devices: Sequence[ExecutorDevice], now_s: float, *, last: bool = False) -> None:
        """Write the line, if it is time to."""
        if self._stream is None or (now_s < self._next_s and not last):
            return
        self._next_s = now_s + self._every_s
        running = sum(device.running for device in devices)
        power_w = sum(device.latest.power_w for device in devices if not device.lost)
        energy_j = sum(device.latest.energy_j for device in devices)
        text = (
            f"{now_s:.0f} s: {self._to_do - running} waiting, {running} running, {self._done} done, "
            f"{self._failed} failed; {power_w:.0f} W now, {energy_j / 1e3:.1f} kJ so far"
        )
        tty = self._stream.isatty()
        self._stream.write((f"\r\033[K{text}" if tty else text) + ("\n" if last or not tty else ""))
        self._stream.flush()
