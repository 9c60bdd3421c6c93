"""What a Dask worker holds for an executor: the line to the process that keeps the host's GPUs.

Dask drops it when the executor's client is gone. With it the line is closed, and at the line's other end the machine is
put in order.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Pipe
from typing import Any

from heshare.devices.remote.messages import Answer, Card, HostLostError, Opening, Order
from heshare.files import PACKAGE

ENDING_S = 60.0
"""How long a host may take to put everything in order before its keeper is killed, and the watchdog does it, s."""


class HostActor:
    """The line to a host's keeper, which is started with it.

    Args:
        topic: the Dask events by which it says which GPU has something new to tell.
    """

    def __init__(self, topic: str) -> None:
        from distributed import get_worker

        worker = get_worker()
        self._turn = threading.Lock()
        self._line, far = Pipe()
        heard, notices = os.pipe()
        path = os.pathsep.join(part for part in (str(PACKAGE.parent), os.environ.get("PYTHONPATH")) if part)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "heshare.devices.remote.keeper", str(far.fileno()), str(notices)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(far.fileno(), notices),
            start_new_session=True,
            cwd="/",
        )
        far.close()
        os.close(notices)
        # It must not hold the actor: the line closes when the actor goes.
        threading.Thread(target=_hear, args=(heard, self._process, worker.log_event, topic), daemon=True).start()

    async def time_s(self) -> float:
        """This machine's monotonic clock, s."""
        return time.monotonic()

    async def open(self, asked: Opening) -> tuple[Card, ...] | str:
        """Take the GPUs; or why they cannot be had."""
        said: tuple[Card, ...] | str = await asyncio.to_thread(self._ask, asked)
        if isinstance(said, str):
            # Whoever refuses has put everything in order and ended.
            self._line.close()
        return said

    async def visit(self, orders: Sequence[Order]) -> Answer:
        """Have orders carried out, and hear how every GPU stands.

        Raises:
            HostLostError: the keeper has gone.
        """
        answer: Answer = await asyncio.to_thread(self._ask, list(orders))
        return answer

    async def close(self) -> str:
        """Have everything put in order; what went wrong, or nothing. May be repeated."""
        return await asyncio.to_thread(self._end)

    def _ask(self, what: Any) -> Any:
        with self._turn:
            try:
                self._line.send(what)
                return self._line.recv()
            except (EOFError, OSError):
                raise HostLostError(f"the keeper of its GPUs ended ({_how(self._process.wait(1.0))})") from None

    def _end(self) -> str:
        with self._turn:
            if self._line.closed:
                return ""
            late = ""
            try:
                self._line.send(None)
                if not self._line.poll(ENDING_S):
                    late = f"its keeper was not done after {ENDING_S:g} s and was killed; its watchdog goes on"
                    self._process.kill()
                self._line.recv()
            except (EOFError, OSError):
                pass
            self._line.close()
            code = self._process.wait()
            return late or (f"its keeper ended ({_how(code)})" if code else "")


def _hear(notices: int, process: subprocess.Popen[bytes], tell: Callable[[str, int], None], topic: str) -> None:
    """Pass on what the keeper has to tell, until it ends; and see to it that it leaves no zombie."""
    while said := os.read(notices, 1):
        tell(topic, said[0])
    os.close(notices)
    process.wait()


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"by signal {-code}"
