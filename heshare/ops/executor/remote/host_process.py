"""The process that holds the GPUs of one host for a run, and the Dask actor on the host's worker that starts it.

The process takes the GPUs as a run on one machine does (locks, watchdog, note, MPS, clocks). It gives them back at the
executor's request, or when the other end of its connection closes: that happens however the worker ends, and when Dask
drops the actor because its executor has ended.
"""

import asyncio
import contextlib
import re
import sys
import threading
import time
from multiprocessing.connection import Connection, Pipe
from typing import Any

from heshare.ops.executor.gpu_set import RunDevice
from heshare.ops.executor.local_gpus import LocalGpus
from heshare.ops.executor.remote.remote_client import STATES, GpuCommand, GpuReport, HostLostError, HostReply
from heshare.ops.state.held_note import state_folder
from heshare.shared.errors import HeShareError
from heshare.shared.processes import exit_text, start_module
from heshare.shared.signals import Interrupted


class HostActor:
    """The connection of a Dask worker to a host process, which is started with this object."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._connection, other_end = Pipe()
        number = other_end.fileno()
        self._process = start_module(
            "heshare.ops.executor.remote.host_process", str(number), inherited=[number], stderr=None
        )
        other_end.close()

    async def ask(self, message: dict[str, Any] | GpuCommand | None) -> Any:
        """Return the reply of the process to the arguments of `_local_gpus`, then to commands; None ends it."""
        if isinstance(message, dict):
            # The difference between the time of the run and this machine's clock; the way here is taken as no time.
            message = {**message, "now_s": message["now_s"] - time.monotonic()}
        return await asyncio.to_thread(self._ask, message)

    def _ask(self, message: Any) -> Any:
        with self._turn:
            try:
                self._connection.send(message)
                return self._connection.recv()
            except (EOFError, OSError):
                ending = exit_text(self._process.wait(1.0))
                raise HostLostError(f"the process that holds its GPUs ended ({ending})") from None


def run_host(connection: Connection) -> int:
    """Take the GPUs, serve the executor, give them back; return the exit code, 0 if it requested the end."""
    try:
        with _local_gpus(**connection.recv()) as gpus:
            connection.send([(device.gpu, device.uuid) for device in gpus.devices])
            while (command := connection.recv()) is not None:
                connection.send(_reply(gpus, command))
    except (EOFError, ConnectionError):
        return 1  # the worker ended, or dropped its actor
    except Interrupted as signal:
        return 128 + signal.number
    except HeShareError as error:
        with contextlib.suppress(ConnectionError):
            connection.send(str(error))
        return 2
    # The end is confirmed only after everything has been released.
    connection.send(" ".join(gpus.unreleased))
    return 0


def _local_gpus(*, name: str, now_s: float, **given: Any) -> LocalGpus:
    # The outputs' folder has only safe characters of the run's name.
    folder = re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:100].strip(".") or "run"
    return LocalGpus(folder=state_folder() / "runs" / folder, now_s=lambda: time.monotonic() + now_s, **given)


def _reply(gpus: LocalGpus, command: GpuCommand) -> HostReply:
    result, refused = None, ""
    try:
        if command.call == "start":
            # The executor counts attempts over all hosts; the launcher adds one to this number.
            gpus.attempts[command.arguments[0]] = command.attempt - 1
        result = getattr(gpus.devices[command.gpu], command.call)(*command.arguments)
    except HeShareError as error:
        refused = str(error)
    return HostReply(tuple(_report(device, gpus.now_s()) for device in gpus.devices), result, refused)


def _report(device: RunDevice, now_s: float) -> GpuReport:
    completed, failed = device.advance(now_s), device.take_failures()
    reading = device.read()
    ended, device.ended = device.ended, {}
    notes, device.notes = device.notes, []
    states = {name: getattr(device, name) for name in STATES}
    return GpuReport(reading, states, device.next_event_s(), completed, failed, device.attempts(), ended, notes)


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as given:
        code = run_host(given)
    sys.exit(code)
