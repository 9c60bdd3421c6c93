"""The process that holds the GPUs of one host for a run: `python -m heshare.ops.executor.remote.host_process`.

The host's Dask worker starts it. It takes the GPUs as a run on one machine does (locks, watchdog, note, MPS, clocks),
and gives them back at the executor's request, or when the other end of its connection closes: that happens however the
worker ends, and when Dask drops the actors of an executor that has ended.
"""

import contextlib
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from heshare.devices.device import TaskFailure
from heshare.ops.executor.local_gpus import LocalGpus
from heshare.ops.executor.remote.remote_messages import GpuCommand, HostReply, OpenRequest, RemoteGpu, StatusReport
from heshare.ops.state.held_note import state_folder
from heshare.shared.errors import HeShareError
from heshare.shared.signals import Interrupted

_LONGEST_S = 10.0


class HostGpus:
    """The devices of one host: jobs run on without the executor, and news is kept until it polls."""

    def __init__(self, gpus: LocalGpus) -> None:
        self._gpus, self._devices, self._now_s = gpus, gpus.devices, gpus.now_s
        self._completed: list[list[int]] = [[] for _ in self._devices]
        self._failed: list[list[TaskFailure]] = [[] for _ in self._devices]
        self._due_s = [math.inf] * len(self._devices)

    def serve(self, connection: Connection, notices: int) -> None:
        """Serve the executor until it requests the end.

        Args:
            connection: commands come in, replies go out.
            notices: a descriptor that gets a byte, a device's index, when that device has news.

        Raises:
            EOFError, ConnectionError: the other end has closed.
        """
        while True:
            # What becomes readable when a job's process ends.
            owners = {ending: index for index, device in enumerate(self._devices) for ending in device.descriptors()}
            wait_s = min(max(0.0, min(self._due_s) - self._now_s()), _LONGEST_S)
            ready = set(wait([connection, *owners], wait_s))
            if connection in ready:
                commands = connection.recv()
                if commands is None:
                    return
                connection.send(self._reply(commands))
            ended, now_s = {index for descriptor, index in owners.items() if descriptor in ready}, self._now_s()
            for index, due_s in enumerate(self._due_s):
                if (index in ended or due_s <= now_s) and self._advance(index):
                    os.write(notices, bytes([index]))

    def _reply(self, commands: Sequence[GpuCommand]) -> HostReply:
        """Execute commands, bring every device to the present, and report each."""
        result: Any = None
        refused = ""
        try:
            for command in commands:
                if command.call == "start":
                    # The executor counts attempts over all hosts; the launcher adds one to this number.
                    self._gpus.attempts[command.arguments[0]] = command.attempt - 1
                result = getattr(self._devices[command.gpu], command.call)(*command.arguments)
        except HeShareError as error:
            refused = str(error)
        indices = range(len(self._devices))
        for index in indices:
            self._advance(index)
        return HostReply(tuple(map(self._report, indices)), result, refused)

    def _advance(self, index: int) -> bool:
        """Bring a device to the present; return whether jobs ended, or the GPU was lost or drained."""
        device = self._devices[index]
        state = device.lost, device.drained
        completed = device.advance(self._now_s())
        failed = device.take_failures()
        self._completed[index] += completed
        self._failed[index] += failed
        self._due_s[index] = device.next_event_s()
        return bool(completed or failed) or (device.lost, device.drained) != state

    def _report(self, index: int) -> StatusReport:
        device = self._devices[index]
        reading = device.read()
        completed, self._completed[index] = tuple(self._completed[index]), []
        failed, self._failed[index] = tuple(self._failed[index]), []
        ended, device.ended = device.ended, {}
        notes, device.notes = tuple(device.notes), []
        next_s, attempts = self._due_s[index], device.attempts()
        return StatusReport(
            reading, next_s, completed, failed, ended, attempts, device.idle_j, notes, device.lost, device.sharing,
            device.drained, device.estimated_j, device.unknown_s,
        )  # fmt: skip


def run_host(connection: Connection, notices: int) -> int:
    """Take the GPUs, serve the executor, give them back; return the exit code, 0 if it requested the end."""
    unreleased: list[str] = []
    try:
        request: OpenRequest | None = connection.recv()
        if request is not None:
            with _local_gpus(request) as gpus:
                taken = zip(gpus.devices, gpus.counters_j, strict=True)
                connection.send(tuple(RemoteGpu(one.gpu, one.uuid, counter_j) for one, counter_j in taken))
                HostGpus(gpus).serve(connection, notices)
            unreleased = gpus.unreleased
    except (EOFError, ConnectionError):
        return 1  # the worker ended, or dropped its actor
    except Interrupted as signal:
        return 128 + signal.number
    except HeShareError as error:
        with contextlib.suppress(ConnectionError):
            connection.send(str(error))
        return 2
    # The end is confirmed only after everything has been released; what could not be is named.
    connection.send(" ".join(unreleased).removesuffix("."))
    return 0


def _local_gpus(request: OpenRequest) -> LocalGpus:
    # The outputs' folder has only safe characters of the run's name.
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", request.name)[:100].strip(".") or "run"
    return LocalGpus(
        uuids=request.uuids,
        jobs=request.jobs,
        now_s=lambda: time.monotonic() + request.offset_s,
        allow_clocks=request.allow_clocks,
        timeouts=request.timeouts,
        tenant_power=request.tenant_power,
        folder=state_folder() / "runs" / name,
    )


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as given:
        code = run_host(given, int(sys.argv[2]))
    sys.exit(code)
