"""The Dask actor of an executor on a host's worker: the connection to the process that holds the host's GPUs.

Dask drops the actor when the executor's client is gone. That closes the connection, and the process gives the GPUs
back.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Pipe
from typing import Any

from heshare.ops.executor.remote.remote_messages import GpuCommand, HostLostError, OpenRequest
from heshare.shared.processes import child_environment, exit_text

CLOSING_S = 60.0
"""How long a host process may take to give everything back before it is killed, and its watchdog does it, s."""
_PROGRAM = "heshare.ops.executor.remote.host_process"


class HostActor:
    """The connection to a host process, which is started with this object.

    Args:
        topic: the Dask events that report the index of a GPU with news.
    """

    def __init__(self, topic: str) -> None:
        from distributed import get_worker

        worker = get_worker()
        self._turn = threading.Lock()
        self._connection, other_end = Pipe()
        notices, notices_writer = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, str(other_end.fileno()), str(notices_writer)],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(other_end.fileno(), notices_writer),
            start_new_session=True,
            cwd="/",
        )
        other_end.close()
        os.close(notices_writer)
        # The thread must not hold this object: the connection closes when Dask drops the actor.
        arguments = (notices, self._process, worker.log_event, topic)
        threading.Thread(target=_forward_notices, args=arguments, daemon=True).start()

    async def time_s(self) -> float:
        """Return this machine's monotonic clock, s."""
        return time.monotonic()

    async def request(self, message: OpenRequest | list[GpuCommand]) -> Any:
        """Have the host process serve a request, and return its reply.

        Returns:
            To an `OpenRequest` the GPUs that were taken, or why that is not possible; to commands a `HostReply`.

        Raises:
            HostLostError: the host process has ended.
        """
        return await asyncio.to_thread(self._request, message)

    async def close(self) -> str:
        """Give everything back; return what went wrong, or an empty text. May be repeated."""
        return await asyncio.to_thread(self._close)

    def _request(self, message: Any) -> Any:
        with self._turn:
            try:
                self._connection.send(message)
                reply = self._connection.recv()
            except (EOFError, OSError):
                ending = exit_text(self._process.wait(1.0))
                raise HostLostError(f"the process that holds its GPUs ended ({ending})") from None
            if isinstance(message, OpenRequest) and isinstance(reply, str):
                # The process could not take the GPUs; it has given everything back and ended.
                self._connection.close()
            return reply

    def _close(self) -> str:
        with self._turn:
            if self._connection.closed:
                return ""
            late = told = ""
            try:
                self._connection.send(None)
                if not self._connection.poll(CLOSING_S):
                    late = f"its host process was not done after {CLOSING_S:g} s and was killed; its watchdog cleans up"
                    self._process.kill()
                told = self._connection.recv()
            except (EOFError, OSError):
                pass
            self._connection.close()
            code = self._process.wait()
            return late or told or (f"its host process ended ({exit_text(code)})" if code else "")


def _forward_notices(
    notices: int, process: subprocess.Popen[bytes], log_event: Callable[[str, int], None], topic: str
) -> None:
    """Forward the notices of a host process as Dask events until it ends; then wait for it, so that no zombie stays."""
    while notice := os.read(notices, 1):
        log_event(topic, notice[0])
    os.close(notices)
    process.wait()
