"""A host of a run, and its GPUs, as the executor uses them: commands travel together, one reply reports every GPU."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.ops.executor.executor_device import Attempt, ExecutorDevice
from heshare.ops.executor.remote.remote_messages import GpuCommand, HostLostError, HostReply, RemoteGpu, StatusReport
from heshare.ops.mps import TIME_SLICE
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

Poll = Callable[[Sequence[GpuCommand]], HostReply]
"""Sends commands to a host and returns its reply; raises `HostLostError` when it does not reply."""
_FRESH_S = 0.05


class RemoteHost:
    """A host of a run. Commands are kept until a reply is needed; then one poll carries them all.

    Args:
        name: the host's.
        gpus: the GPUs that it has taken.
        poll: sends commands to the host.
        now_s: the time of the run, s.
        attempts: the number of attempts at each task, shared with all hosts of the run.
        poll_s: time between two polls while jobs run, s.

    Attributes:
        devices: one for each GPU, in order.
        lost: why it no longer replies; empty as long as it does.
    """

    def __init__(
        self,
        name: str,
        gpus: Sequence[RemoteGpu],
        poll: Poll,
        now_s: Callable[[], float],
        attempts: dict[int, int],
        *,
        poll_s: float = 1.0,
    ) -> None:
        self.name, self.now_s, self.attempts, self.poll_s = name, now_s, attempts, poll_s
        self.lost = ""
        self._poll = poll
        self._commands: list[GpuCommand] = []
        self._polled_s = -math.inf
        self.devices = [RemoteDevice(self, index, taken) for index, taken in enumerate(gpus)]
        self.poll()

    @property
    def fresh(self) -> bool:
        """Whether the last poll was a moment ago."""
        return self.now_s() - self._polled_s <= _FRESH_S

    def send(self, command: GpuCommand) -> None:
        """Keep a command for the next poll."""
        if not self.lost:
            self._commands.append(command)

    def update(self, *, force: bool = False) -> None:
        """Poll, unless there are no commands and the last poll was a moment ago (or `force`)."""
        if force or self._commands or not self.fresh:
            self.poll()

    def poll(self, by: RemoteDevice | None = None) -> Any:
        """Send the commands, apply the reports of every GPU, and return the result of the last command.

        Args:
            by: the device that polls and returns its own news; the others are woken by theirs.

        Raises:
            DeviceError: a command was refused.
        """
        if self.lost:
            return None
        commands, self._commands = self._commands, []
        try:
            reply = self._poll(commands)
        except HostLostError as error:
            self.lost = str(error)
            for device in self.devices:
                device.lost = self.lost
                device.note(self.lost, "host-lost")
                device.wake()
            return None
        self._polled_s = self.now_s()
        for device, report in zip(self.devices, reply.reports, strict=True):
            if device.apply(report) and device is not by:
                device.wake()
        if reply.refused:
            raise DeviceError(f"{self.name}: {reply.refused}")
        return reply.result

    def close(self) -> None:
        """Close the descriptors of its devices."""
        for device in self.devices:
            device.close()


class RemoteDevice(ExecutorDevice):
    """A GPU of another host; `index` is its index among the host's GPUs of the run, from 0."""

    def __init__(self, host: RemoteHost, index: int, taken: RemoteGpu) -> None:
        super().__init__(taken.gpu, taken.uuid, host.name, host.now_s, Reading(host.now_s(), None, 0.0, 0.0, 0.0))
        self.sharing = TIME_SLICE
        self._remote_host, self._index = host, index
        self._residents: dict[int, tuple[Progress, Attempt]] = {}
        self._completed: list[int] = []
        self._next_s = math.inf
        # The event loop waits for it to become readable.
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def update(self, *, force: bool = False) -> None:
        """Poll its host, unless that was done a moment ago (or `force`)."""
        self._remote_host.update(force=force)

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request a clock, with the next poll; an error as in `Device.set_clock`."""
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        self._remote_host.send(GpuCommand(self._index, "set_clock", (sm_mhz,)))

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a job, with the next poll; an error is a failure of the job, which `take_failures` returns."""
        number = self._remote_host.attempts[task_id] = self._remote_host.attempts.get(task_id, 0) + 1
        # What stands here until the host's first report of it.
        progress = Progress(task_id, Resident(workload, mps_pct), 0.0, math.inf)
        attempt = Attempt(number, math.nan, math.nan, 0.0, 0.0, None, "", self.latest.sm_mhz, (), self.latest.energy_j)
        self._residents[task_id] = (progress, attempt)
        self._remote_host.send(GpuCommand(self._index, "start", (task_id, workload, mps_pct, iterations), number))

    def stop(self, task_id: int) -> float:
        """End a job; return the iterations that it did, none for a command; an error as in `Device.stop`."""
        self._require_running(task_id)
        self._remote_host.send(GpuCommand(self._index, "stop", (task_id,)))
        done = self._remote_host.poll()
        self._remove(task_id)
        return 0.0 if done is None else float(done)

    def stop_all(self) -> None:
        """End all jobs on the GPU at once."""
        self._remote_host.send(GpuCommand(self._index, "stop_all"))
        self._remote_host.poll()
        for task in list(self._residents):
            self._remove(task)

    def read(self) -> Reading:
        """Return its state at the last poll, which is now if there were commands."""
        self.update()
        return self._reading({task: progress for task, (progress, _) in self._residents.items()})

    def next_event_s(self) -> float:
        """Return when to poll it again, s: at once if there is news, else after `poll_s` while jobs run."""
        now_s = self._now_s()
        if self._completed or self._failed or (self.lost and self._residents):
            return now_s
        if self.lost:
            return math.inf
        # The host polls its GPUs by itself as often as needed, and wakes this device when that has results.
        return now_s + self._remote_host.poll_s if self._residents else max(self._next_s, now_s)

    def advance(self, to_s: float) -> list[int]:
        """Bring it to the present; return the jobs that completed.

        The host is not polled if that was done a moment ago and nothing has woken this device: so the commands for a
        batch stay together.
        """
        woken = 0
        with suppress(BlockingIOError):
            woken = os.eventfd_read(self._wake)
        if woken or not self._remote_host.fresh:
            self._remote_host.poll(by=self)
        completed, self._completed = self._completed, []
        for task in completed:
            self._residents.pop(task, None)
        if self.lost:
            reported = {failure.task_id for failure in self._failed}
            lost = [task for task in self._residents if task not in reported]
            self._failed += [TaskFailure(task, "lost", self.lost, charged=False) for task in lost]
        return completed

    def take_failures(self) -> list[TaskFailure]:
        """Return the attempts that failed since the last call."""
        failed = super().take_failures()
        for failure in failed:
            self._remove(failure.task_id)
        return failed

    def descriptors(self) -> list[int]:
        """Return the file descriptor that becomes readable when there is something new."""
        return [self._wake]

    def attempts(self) -> dict[int, Attempt]:
        """Return the records so far of the attempts on it, by task."""
        return {task: attempt for task, (_, attempt) in self._residents.items()}

    def wake(self) -> None:
        """Make the device's file descriptor readable, which wakes the event loop."""
        os.eventfd_write(self._wake, 1)

    def apply(self, report: StatusReport) -> bool:
        """Apply a report; return whether the event loop must process something."""
        self.latest, self.idle_j, self.sharing = report.reading, report.idle_j, report.sharing
        self.requested_mhz, self._next_s = report.reading.requested_mhz, report.next_s
        self.notes += report.notes
        self.ended |= {task: self._with_host(attempt) for task, attempt in report.ended.items()}
        for task, (progress, _) in self._residents.items():
            if task in report.attempts:
                progress = report.reading.residents.get(task, progress)
                self._residents[task] = (progress, self._with_host(report.attempts[task]))
        self._completed += report.completed
        self._failed += report.failed
        news = bool(report.completed or report.failed) or (report.lost, report.drained) != (self.lost, self.drained)
        self.lost, self.drained = report.lost, report.drained
        self.estimated_j, self.unknown_s = report.estimated_j, report.unknown_s
        return news

    def close(self) -> None:
        """Close the device's file descriptor."""
        os.close(self._wake)

    def _remove(self, task_id: int) -> None:
        """Remove a job; if its host never reported how it ended, keep the last record of it."""
        removed = self._residents.pop(task_id, None)
        if removed is not None:
            self.ended.setdefault(task_id, removed[1])

    def _with_host(self, attempt: Attempt) -> Attempt:
        return replace(attempt, log=f"{self.host}:{attempt.log}") if attempt.log else attempt


def lost_device(name: str, host: str, uuid: str, reason: str, now_s: Callable[[], float]) -> RemoteDevice:
    """Return a device that is lost from the beginning: a GPU of the run that is missing when the run is resumed.

    Its name is that of the catalogue; its host is empty for this machine.
    """

    def poll(commands: Sequence[GpuCommand]) -> HostReply:
        raise HostLostError(reason)

    return RemoteHost(host, (RemoteGpu(gpu(name), uuid, None),), poll, now_s, {}).devices[0]
