"""The process that holds the GPUs of one host for a run: `python -m heshare.gpu.remote.host_process`.

The host's Dask worker starts it. It takes the GPUs as a run on one machine does (locks, watchdog, note, MPS, clocks), and
gives them back at the executor's request, or when the other end of its connection closes: that happens however the
worker ends, and when Dask drops the actors of an executor that has died.
"""

import contextlib
import math
import os
import re
import select
import sys
import time
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from heshare.devices.device import TaskFailure
from heshare.errors import HeShareError
from heshare.gpu.executor.local_gpus import LocalGpus
from heshare.gpu.nvml.clock_lock import state_folder
from heshare.gpu.remote.remote_messages import GpuCommand, HostReply, OpenRequest, RemoteGpu, StatusReport
from heshare.signals import Interrupted

_LONGEST_S = 10.0


class HostGpus:
    """The devices of one host: jobs run on without the executor, and news is kept until it polls.

    Args:
        gpus: the GPUs, taken.
        now_s: the time of the run, s.
    """

    def __init__(self, gpus: LocalGpus, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._gpus, self._devices = gpus, gpus.devices
        self._completed: list[list[int]] = [[] for _ in self._devices]
        self._failed: list[list[TaskFailure]] = [[] for _ in self._devices]
        self._notes_sent = [0] * len(self._devices)
        self._due_s = [math.inf] * len(self._devices)

    def remote_gpus(self) -> tuple[RemoteGpu, ...]:
        """Return the GPUs as the executor sees them."""
        return tuple(
            RemoteGpu(device.gpu, device.uuid, device.sharing, counter_j)
            for device, counter_j in zip(self._devices, self._gpus.counters_j(), strict=True)
        )

    def poll(self, commands: Sequence[GpuCommand]) -> HostReply:
        """Execute commands, bring every device to the present, and report each."""
        results: list[float | None] = []
        refused = ""
        try:
            for command in commands:
                results.append(self._execute(command))
        except HeShareError as error:
            refused = str(error)
        for index in range(len(self._devices)):
            self._advance(index)
        reports = tuple(self._report(index) for index in range(len(self._devices)))
        return HostReply(reports, tuple(results), refused)

    def step(self, ended: Collection[int] = ()) -> list[int]:
        """Advance the devices that are due, or on which a process has ended; return those that have news."""
        now_s = self.now_s()
        due = [index for index, due_s in enumerate(self._due_s) if index in ended or due_s <= now_s]
        return [index for index in due if self._advance(index)]

    def due_s(self) -> float:
        """Return when the next device is due, s."""
        return min(self._due_s)

    def descriptors(self) -> dict[int, int]:
        """Return the descriptors that become readable when a job's process ends, with the index of their device."""
        return {descriptor: index for index, device in enumerate(self._devices) for descriptor in device.descriptors()}

    def _execute(self, command: GpuCommand) -> float | None:
        device = self._devices[command.gpu]
        if command.call == "start":
            # The executor counts attempts over all hosts; the launcher adds one to this number.
            self._gpus.attempts[command.arguments[0]] = command.attempt - 1
            device.start(*command.arguments)
        elif command.call == "stop":
            return device.stop(*command.arguments)
        elif command.call == "set_clock":
            device.set_clock(*command.arguments)
        else:
            device.stop_all()
        return None

    def _advance(self, index: int) -> bool:
        """Bring a device to the present; return whether jobs ended or the GPU was lost."""
        device = self._devices[index]
        lost = device.lost
        completed = device.advance(self.now_s())
        failed = device.take_failures()
        self._completed[index] += completed
        self._failed[index] += failed
        self._due_s[index] = device.next_event_s()
        return bool(completed or failed) or device.lost != lost

    def _report(self, index: int) -> StatusReport:
        device = self._devices[index]
        completed, self._completed[index] = tuple(self._completed[index]), []
        failed, self._failed[index] = tuple(self._failed[index]), []
        ended, device.ended = device.ended, {}
        reading, next_s, attempts = device.read(), self._due_s[index], device.attempts()
        notes = tuple(device.notes[self._notes_sent[index] :])
        self._notes_sent[index] += len(notes)
        return StatusReport(
            reading, next_s, completed, failed, ended, attempts, device.idle_j, notes, device.lost, device.sharing
        )


def serve_requests(gpus: HostGpus, connection: Connection, notices: int) -> None:
    """Serve the executor until it requests the end.

    Args:
        gpus: the devices.
        connection: commands come in, replies go out.
        notices: a descriptor that gets a byte, a device's index, when that device has news.

    Raises:
        EOFError, ConnectionError: the other end has closed.
    """
    while True:
        owners = gpus.descriptors()
        poll = select.poll()
        for descriptor in (connection.fileno(), *owners):
            poll.register(descriptor, select.POLLIN)
        wait_s = min(max(0.0, gpus.due_s() - gpus.now_s()), _LONGEST_S)
        ready = {descriptor for descriptor, _ in poll.poll(math.ceil(1e3 * wait_s))}
        if connection.fileno() in ready:
            commands = connection.recv()
            if commands is None:
                return
            connection.send(gpus.poll(commands))
        for index in gpus.step({owners[descriptor] for descriptor in ready & owners.keys()}):
            os.write(notices, bytes([index]))


def outputs_folder(name: str) -> Path:
    """Return the folder in which a host keeps the outputs of a run; of the run's name, only safe characters."""
    return state_folder() / "runs" / (re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:100].strip(".") or "run")


def run_host(connection: Connection, notices: int) -> int:
    """Take the GPUs, serve the executor, give them back; return the exit code, 0 if it requested the end."""
    try:
        request: OpenRequest | None = connection.recv()
        if request is None:
            connection.send(None)
            return 0
    except (EOFError, ConnectionError):
        return 1  # the worker ended before anything was taken
    offset_s = request.offset_s

    def now_s() -> float:
        return time.monotonic() + offset_s

    ordered = False
    gpus = LocalGpus(
        request.uuids,
        request.jobs,
        outputs_folder(request.name),
        now_s,
        allow_clocks=request.allow_clocks,
        timeouts=request.timeouts,
    )
    try:
        with gpus, contextlib.suppress(EOFError, ConnectionError):
            host = HostGpus(gpus, now_s)
            connection.send(host.remote_gpus())
            serve_requests(host, connection, notices)
            ordered = True
    except Interrupted as signal:
        return 128 + signal.number
    except HeShareError as error:
        with contextlib.suppress(ConnectionError):
            connection.send(str(error))
        return 2
    if ordered:
        # Only now, with everything given back, is the end confirmed.
        connection.send(None)
    return 0 if ordered else 1


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as given:
        code = run_host(given, int(sys.argv[2]))
    sys.exit(code)
