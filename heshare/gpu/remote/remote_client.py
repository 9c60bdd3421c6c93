"""A host of a run, and its GPUs, as the executor uses them: commands travel together, one reply reports every GPU."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.errors import DeviceError
from heshare.gpu.executor.job_on_gpu import Attempt
from heshare.gpu.mps import TIME_SLICE
from heshare.gpu.remote.remote_messages import GpuCommand, HostLostError, HostReply, RemoteGpu, StatusReport
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

Poll = Callable[[Sequence[GpuCommand]], HostReply]
"""Sends commands to a host and returns its reply; raises `HostLostError` when it does not answer."""
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
        lost: why it no longer answers; empty as long as it does.
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

    def update(self) -> None:
        """Poll, unless there are no commands and the last poll was a moment ago."""
        if self._commands or not self.fresh:
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
            self.mark_lost(str(error))
            return None
        self._polled_s = self.now_s()
        for device, report in zip(self.devices, reply.reports, strict=True):
            if device.apply(report) and device is not by:
                device.wake()
        if reply.refused:
            raise DeviceError(f"{self.name}: {reply.refused}")
        return reply.results[-1] if reply.results else None

    def mark_lost(self, reason: str) -> None:
        """Give up the host, with everything on it."""
        self.lost = reason
        self._commands.clear()
        for device in self.devices:
            device.notes.append(f"{self.now_s():.1f} s: {self.lost}")
            device.wake()

    def close(self) -> None:
        """Close the descriptors of its devices."""
        for device in self.devices:
            device.close()


class RemoteDevice:
    """The `ExecutorDevice` of a GPU of another host.

    Args:
        host: its host.
        index: its index among the host's GPUs of the run, from 0.
        taken: the GPU.

    Attributes:
        ended: the records of attempts that have ended, by task, until they are taken out.
        idle_j: energy while nothing ran, J.
        latest: its latest reading.
        notes: notes for the operator, in order.
    """

    provenance = "measured"

    def __init__(self, host: RemoteHost, index: int, taken: RemoteGpu) -> None:
        self.gpu, self.uuid, self.sharing = taken.gpu, taken.uuid, taken.sharing
        self.host = host.name
        self.ended: dict[int, Attempt] = {}
        self.idle_j = 0.0
        self.latest = Reading(host.now_s(), None, 0.0, 0.0, 0.0)
        self.notes: list[str] = []
        self._host, self._index = host, index
        self._residents: dict[int, tuple[Progress, Attempt]] = {}
        self._completed: list[int] = []
        self._failed: list[TaskFailure] = []
        self._lost = ""
        self._next_s = math.inf
        # The event loop waits for the reading end.
        self._wake_reader, self._wake_writer = os.pipe()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.set_blocking(descriptor, False)

    @property
    def lost(self) -> str:
        """The reason for which the GPU can no longer be used; empty as long as it can."""
        return self._host.lost or self._lost

    @property
    def running(self) -> int:
        """The number of jobs on it."""
        return len(self._residents)

    def update(self, *, force: bool = False) -> None:
        """Poll its host, unless that was done a moment ago (or `force`)."""
        if force:
            self._host.poll()
        else:
            self._host.update()

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request a clock, with the next poll.

        Raises:
            InputError: the clock is not on the grid.
        """
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        self._host.send(GpuCommand(self._index, "set_clock", (sm_mhz,)))

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a job, with the next poll; an error is a failure of the job, which `take_failures` returns."""
        number = self._host.attempts[task_id] = self._host.attempts.get(task_id, 0) + 1
        # What stands here until the host's first report of it.
        progress = Progress(task_id, Resident(workload, mps_pct), 0.0, math.inf)
        attempt = Attempt(number, math.nan, math.nan, 0.0, None, "", self.latest.sm_mhz, (), self.latest.energy_j)
        self._residents[task_id] = (progress, attempt)
        self._host.send(GpuCommand(self._index, "start", (task_id, workload, mps_pct, iterations), number))

    def stop(self, task_id: int) -> float:
        """End a job; return the iterations that it did, which is none for a command.

        Raises:
            DeviceError: no such job runs here.
        """
        if task_id not in self._residents:
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): no job {task_id} on it. Stop only what runs.")
        self._host.send(GpuCommand(self._index, "stop", (task_id,)))
        done = self._host.poll()
        self._remove(task_id)
        return 0.0 if done is None else float(done)

    def stop_all(self) -> None:
        """End every job, all at once."""
        self._host.send(GpuCommand(self._index, "stop_all"))
        self._host.poll()
        for task in list(self._residents):
            self._remove(task)

    def read(self) -> Reading:
        """Return its state at the last poll, which is now if there were commands."""
        self._host.update()
        residents = {task: progress for task, (progress, _) in self._residents.items()}
        reading = replace(self.latest, time_s=self._host.now_s(), residents=residents)
        # Its power is unknown from here on; no value is invented for it.
        return replace(reading, power_w=0.0) if self.lost else reading

    def next_event_s(self) -> float:
        """Return when to poll it again, s: at once if there is news, else after `poll_s` while jobs run."""
        now_s = self._host.now_s()
        if self._completed or self._failed or (self.lost and self._residents):
            return now_s
        if self.lost:
            return math.inf
        # The host polls its GPUs by itself as often as needed, and wakes this device when that has results.
        return now_s + self._host.poll_s if self._residents else max(self._next_s, now_s)

    def advance(self, to_s: float) -> list[int]:
        """Bring it to the present; return the jobs that completed.

        The host is not polled if that was done a moment ago and nothing has woken this device: so the commands for a
        batch stay together.
        """
        woken = False
        with contextlib.suppress(BlockingIOError):
            woken = bool(os.read(self._wake_reader, 4096))
        if woken or not self._host.fresh:
            self._host.poll(by=self)
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
        failed, self._failed = self._failed, []
        for failure in failed:
            self._remove(failure.task_id)
        return failed

    def descriptors(self) -> list[int]:
        """Return the file descriptor that becomes readable when there is something new."""
        return [self._wake_reader]

    def attempts(self) -> dict[int, Attempt]:
        """Return the records so far of the attempts on it, by task."""
        return {task: attempt for task, (_, attempt) in self._residents.items()}

    def shares_j(self) -> dict[int, float]:
        """Return the energy so far of each job on it, and of those in `ended`, J."""
        return {task: attempt.energy_j for task, attempt in (self.attempts() | self.ended).items()}

    def wake(self) -> None:
        """Make its descriptor readable."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writer, b".")

    def apply(self, report: StatusReport) -> bool:
        """Apply a report; return whether the event loop must process something."""
        self.latest, self.idle_j, self.sharing = report.reading, report.idle_j, report.sharing
        self._next_s = report.next_s
        self.notes += report.notes
        self.ended |= {task: self._with_host(attempt) for task, attempt in report.ended.items()}
        for task, (progress, _) in self._residents.items():
            if task in report.attempts:
                progress = report.reading.residents.get(task, progress)
                self._residents[task] = (progress, self._with_host(report.attempts[task]))
        self._completed += report.completed
        self._failed += report.failed
        news = bool(report.completed or report.failed) or report.lost != self._lost
        self._lost = report.lost
        return news

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in (self._wake_reader, self._wake_writer):
            os.close(descriptor)

    def _remove(self, task_id: int) -> None:
        """Remove a job; if its host never reported how it ended, keep the last record of it."""
        removed = self._residents.pop(task_id, None)
        if removed is not None:
            self.ended.setdefault(task_id, removed[1])

    def _with_host(self, attempt: Attempt) -> Attempt:
        return replace(attempt, log=f"{self.host}:{attempt.log}") if attempt.log else attempt


def lost_device(name: str, uuid: str, host: str, reason: str, now_s: Callable[[], float]) -> RemoteDevice:
    """Return a device that is lost from the beginning: a GPU of the run that is missing when the run is resumed.

    Args:
        name: of the GPU in the catalogue.
        uuid: of the GPU.
        host: its host's name; empty for this machine.
        reason: for messages.
        now_s: the time of the run, s.
    """

    def poll(commands: Sequence[GpuCommand]) -> HostReply:
        raise HostLostError(reason)

    return RemoteHost(host, (RemoteGpu(gpu(name), uuid, TIME_SLICE, None),), poll, now_s, {}).devices[0]
