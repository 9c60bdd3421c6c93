"""A host of a run, and its GPUs, as the executor uses them: every reply of a host reports all of its GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.ops.executor.executor_device import Attempt, ExecutorDevice
from heshare.ops.mps import TIME_SLICE
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

STATES = ("idle_j", "lost", "drained", "estimated_j", "unknown_s", "counter_j", "sharing")
"""Attributes of a host's `ExecutorDevice` that its twin at the executor takes over with every report."""
_POLL_S = 0.25
"""How often a host is asked for news while jobs run there, s."""
_FRESH_S = 0.05
"""A host that has replied within so long is not asked again, s: what happens at one moment needs one reply."""


class HostLostError(DeviceError):
    """A host no longer replies: its GPUs are lost to the run."""


@dataclass(frozen=True, slots=True)
class GpuCommand:
    """A method of the device of the GPU with this index on the host; of a start, the number of the attempt."""

    gpu: int
    call: str
    arguments: tuple[Any, ...] = ()
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class GpuReport:
    """The state of one GPU and of the attempts that run, and what completed, failed and ended since the last report.

    `next_s` is when there may be more to report, s; `inf` if nothing runs.
    """

    reading: Reading
    states: Mapping[str, Any]
    next_s: float
    completed: Sequence[int]
    failed: Sequence[TaskFailure]
    attempts: Mapping[int, Attempt]
    ended: Mapping[int, Attempt]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class HostReply:
    """The reply to a command: a report for each of the host's GPUs, and what it returned, or why it was refused."""

    reports: tuple[GpuReport, ...]
    result: Any = None
    refused: str = ""


class RemoteHost:
    """A host of a run, with the GPUs that it has taken; `send` raises `HostLostError` where it does not reply.

    `attempts`, the number of attempts at each task, is shared with all hosts of the run.
    """

    def __init__(
        self,
        name: str,
        gpus: Sequence[tuple[Gpu, str]],
        send: Callable[[GpuCommand], HostReply],
        now_s: Callable[[], float],
        attempts: dict[int, int],
    ) -> None:
        self.name, self.now_s, self.attempts = name, now_s, attempts
        self._send, self._lost, self.polled_s = send, False, -math.inf
        self.devices = [RemoteDevice(self, index, *taken) for index, taken in enumerate(gpus)]
        self.poll()

    def poll(self, *, force: bool = False) -> None:
        """Ask for the state of its GPUs, unless it has replied a moment ago (or `force`)."""
        if force or self.now_s() - self.polled_s >= _FRESH_S:
            self.execute(GpuCommand(0, "read"))

    def execute(self, command: GpuCommand) -> Any:
        """Have a command executed, apply the reports of every GPU, and return what the command returned."""
        if self._lost:
            return None
        try:
            reply = self._send(command)
        except HostLostError as error:
            self._lost = True
            for device in self.devices:
                device.lost = str(error)
                device.note(device.lost, "host-lost")
            return None
        self.polled_s = self.now_s()
        for device, report in zip(self.devices, reply.reports, strict=True):
            device.apply(report)
        if reply.refused:
            raise DeviceError(f"{self.name}: {reply.refused}")
        return reply.result


class RemoteDevice(ExecutorDevice):
    """A GPU of another host; `index` is its index among the host's GPUs of the run, from 0."""

    def __init__(self, host: RemoteHost, index: int, gpu: Gpu, uuid: str) -> None:
        super().__init__(gpu, uuid, host.name, host.now_s, Reading(host.now_s(), None, 0.0, 0.0, 0.0))
        self.sharing = TIME_SLICE
        self._remote_host, self._index = host, index
        self._residents: dict[int, tuple[Progress, Attempt]] = {}
        self._completed: list[int] = []
        self._next_s = math.inf

    def update(self, *, force: bool = False) -> None:
        self._remote_host.poll(force=force)

    def set_clock(self, sm_mhz: int | None) -> None:
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        self._execute("set_clock", sm_mhz)

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        number = self._remote_host.attempts[task_id] = self._remote_host.attempts.get(task_id, 0) + 1
        # What stands here until the host's first report of it.
        progress = Progress(task_id, Resident(workload, mps_pct), 0.0, math.inf)
        attempt = Attempt(number, math.nan, math.nan, 0.0, 0.0, None, "", self.latest.sm_mhz, (), self.latest.energy_j)
        self._residents[task_id] = (progress, attempt)
        self._execute("start", task_id, workload, mps_pct, iterations, attempt=number)

    def stop(self, task_id: int) -> float:
        self._require_running(task_id)
        done = self._execute("stop", task_id)
        self._remove(task_id)
        return 0.0 if done is None else float(done)

    def stop_all(self) -> None:
        self._execute("stop_all")
        for task in list(self._residents):
            self._remove(task)

    def read(self) -> Reading:
        self.update()
        return self._reading({task: progress for task, (progress, _) in self._residents.items()})

    def next_event_s(self) -> float:
        now_s = self._now_s()
        if self._completed or self._failed or (self.lost and self._residents):
            return now_s
        if self.lost:
            return math.inf
        polled_s = self._remote_host.polled_s
        next_s = min(self._next_s, polled_s + _POLL_S) if self._residents else self._next_s
        return max(now_s, polled_s + _FRESH_S, next_s)

    def advance(self, to_s: float) -> list[int]:
        self.update()
        completed, self._completed = self._completed, []
        for task in completed:
            self._residents.pop(task, None)
        if self.lost:
            reported = {failure.task_id for failure in self._failed}
            lost = [task for task in self._residents if task not in reported]
            self._failed += [TaskFailure(task, "lost", self.lost, charged=False) for task in lost]
        return completed

    def take_failures(self) -> list[TaskFailure]:
        failed = super().take_failures()
        for failure in failed:
            self._remove(failure.task_id)
        return failed

    def descriptors(self) -> list[int]:
        return []  # its host is polled

    def attempts(self) -> dict[int, Attempt]:
        return {task: attempt for task, (_, attempt) in self._residents.items()}

    def apply(self, report: GpuReport) -> None:
        vars(self).update(report.states)
        self.latest, self._next_s = report.reading, report.next_s
        self.requested_mhz = report.reading.requested_mhz
        self.notes += report.notes
        self.ended |= {task: self._with_host(attempt) for task, attempt in report.ended.items()}
        for task, (progress, _) in self._residents.items():
            if task in report.attempts:
                progress = report.reading.residents.get(task, progress)
                self._residents[task] = (progress, self._with_host(report.attempts[task]))
        self._completed += report.completed
        self._failed += report.failed

    def _execute(self, call: str, *arguments: Any, attempt: int = 0) -> Any:
        return self._remote_host.execute(GpuCommand(self._index, call, arguments, attempt))

    def _remove(self, task_id: int) -> None:
        """Remove a job; if its host never reported how it ended, keep the last record of it."""
        removed = self._residents.pop(task_id, None)
        if removed is not None:
            self.ended.setdefault(task_id, removed[1])

    def _with_host(self, attempt: Attempt) -> Attempt:
        return replace(attempt, log=f"{self.host}:{attempt.log}") if attempt.log else attempt


def lost_device(name: str, host: str, uuid: str, reason: str, now_s: Callable[[], float]) -> RemoteDevice:
    """Return a device that is lost from the beginning: a GPU of the run that is missing when the run is resumed."""

    def send(command: GpuCommand) -> HostReply:
        raise HostLostError(reason)

    return RemoteHost(host, [(gpu(name), uuid)], send, now_s, {}).devices[0]
