"""What the executor does while the event loop runs: journal, wait for processes, decide on retries, tell how far."""

from __future__ import annotations

import math
import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from heshare.devices.command import Assigned
from heshare.devices.failing import Failed
from heshare.devices.worked import WorkedDevice
from heshare.policies.policy import Action, Event, Migrate, Pause, SetClock, Start, Wait
from heshare.running.jobs import FREE_ATTEMPTS, History
from heshare.running.ledger import Ledger
from heshare.running.observer import Observer
from heshare.running.timeline import Interval

SAMPLE_S = 10.0
"""How often the energy accounts are journalled, s."""


class Attendant(Observer):
    """Hears of everything in a live run.

    Args:
        ledger: the journal.
        jobs: the jobs by task id.
        devices: the GPUs.
        now_s: the time that the devices share, s.
        history: what was done in earlier sessions.
        show: where progress goes, or None.
    """

    def __init__(
        self,
        ledger: Ledger,
        jobs: Mapping[int, Assigned],
        devices: Sequence[WorkedDevice],
        now_s: Callable[[], float],
        history: History,
        show: TextIO | None = None,
    ) -> None:
        self._ledger, self._jobs, self._devices, self._now_s = ledger, jobs, devices, now_s
        self._charged, self._free = dict(history.charged), dict(history.free)
        self._verdict: dict[int, bool] = {}
        self._noted = [0] * len(devices)
        self._next_sample_s = SAMPLE_S
        self._acted = False
        self._progress = Progress(len(history.over), len(jobs), show)

    def decided(self, event: Event, actions: Sequence[Action]) -> None:
        """Journal a decision, and all results before it, before anything of it is done."""
        said = {
            "t": event.time_s,
            "decided_s": self._now_s(),
            "event": event.kind.name.lower(),
            "jobs": [self._jobs[task].key for task in event.tasks],
            "gpu": event.gpu,
            "actions": [in_words(action, self._key) for action in actions],
        }
        if actions and not self._acted:
            # What was spent before anything was begun, planning included, is nobody's work.
            self._acted = True
            self.sample(fresh=True)
        if event.tasks or actions:
            self._ledger.add({"decision": said})

    def closed(self, interval: Interval, failed: Failed | None) -> None:
        """Journal how an attempt ended; it counts once the next decision is on disk."""
        job = self._jobs[interval.task]
        attempt = self._devices[interval.gpu].attempts.pop(interval.task)
        again = failed is not None and self._judge(job, failed)
        self._verdict[interval.task] = again
        self._ledger.add(
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

    def again(self, failed: Failed) -> bool:
        """By the job's own retries; what was not its fault is free, but not without end."""
        return self._verdict[failed.task_id]

    def wait(self, until_s: float) -> Iterable[int]:
        """Wait for the time or for the end of a job's process; keep the accounts and tell how far the run is."""
        watch = select.poll()
        owner: dict[int, int] = {}
        for index, device in enumerate(self._devices):
            for descriptor in device.descriptors():
                watch.register(descriptor, select.POLLIN)
                owner[descriptor] = index
        while (left_s := until_s - self._now_s()) > 0:
            ended = watch.poll(math.ceil(min(left_s, SAMPLE_S) * 1e3))
            self._keep_accounts()
            if ended:
                return sorted({owner[descriptor] for descriptor, _ in ended})
        return ()

    def sample(self, *, sync: bool = False, fresh: bool = False) -> None:
        """Journal what energy has gone where by now; `fresh` asks the cards once more."""
        if fresh:
            for device in self._devices:
                device.meter.look(again=True)
        gpus = [
            {
                "energy_j": device.meter.latest.energy_j,
                "idle_j": device.idle_j,
                "shares_j": {self._jobs[task].key: share_j for task, share_j in device.shares_j().items()},
                "sm_mhz": device.meter.latest.sm_mhz,
                "power_w": device.meter.latest.power_w,
            }
            for device in self._devices
        ]
        self._ledger.add({"sample": {"t": self._now_s(), "gpus": gpus}}, sync=sync)
        for index, device in enumerate(self._devices):
            for note in device.meter.notes[self._noted[index] :]:
                self._ledger.add({"note": {"gpu": index, "text": note}}, sync=sync)
            self._noted[index] = len(device.meter.notes)

    def finish(self) -> None:
        """The last accounts, and the end of the progress line."""
        self.sample(sync=True)
        self._progress.show(self._devices, self._now_s(), last=True)

    def _keep_accounts(self) -> None:
        now_s = self._now_s()
        if now_s >= self._next_sample_s:
            self._next_sample_s = now_s + SAMPLE_S
            self.sample()
        self._progress.show(self._devices, now_s)

    def _judge(self, job: Assigned, failed: Failed) -> bool:
        side = self._charged if failed.charged else self._free
        side[job.key] = side.get(job.key, 0) + 1
        return side[job.key] <= (job.spec.retries if failed.charged else FREE_ATTEMPTS)

    def _key(self, task: int) -> str:
        return self._jobs[task].key if task in self._jobs else f"(task {task})"


def in_words(action: Action, key: Callable[[int], str]) -> list[Any]:
    """An action as a journal writes it, with jobs by their keys."""
    if isinstance(action, Start | Migrate):
        kind = "start" if isinstance(action, Start) else "migrate"
        return [kind, key(action.task), action.gpu, action.mps_pct, action.batch_size]
    if isinstance(action, SetClock):
        return ["clock", action.gpu, action.sm_mhz]
    if isinstance(action, Pause):
        return ["pause", key(action.task)]
    return ["wait", action.until_s] if isinstance(action, Wait) else [str(action)]


class Progress:
    """One line about a run, written anew on a terminal, now and then elsewhere.

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
        """An attempt has ended."""
        if outcome == "completed":
            self._done, self._to_do = self._done + 1, self._to_do - 1
        elif outcome.startswith("failed") and not again:
            self._failed, self._to_do = self._failed + 1, self._to_do - 1

    def show(self, devices: Sequence[WorkedDevice], now_s: float, *, last: bool = False) -> None:
        """Write the line, if it is time to."""
        if self._stream is None or (now_s < self._next_s and not last):
            return
        self._next_s = now_s + self._every_s
        running = sum(device.running for device in devices)
        power_w = sum(device.meter.latest.power_w for device in devices if not device.lost)
        energy_j = sum(device.meter.latest.energy_j for device in devices)
        text = (
            f"{now_s:.0f} s: {self._to_do - running} waiting, {running} running, {self._done} done, "
            f"{self._failed} failed; {power_w:.0f} W now, {energy_j / 1e3:.1f} kJ so far"
        )
        tty = self._stream.isatty()
        self._stream.write((f"\r\033[K{text}" if tty else text) + ("\n" if last or not tty else ""))
        self._stream.flush()


def terminal() -> TextIO:
    """Where progress goes: standard error, so that results can be piped."""
    return sys.stderr
