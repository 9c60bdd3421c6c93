"""Messages to systemd (the protocol of sd_notify(3)): a run is ready, how far it is, that it lives, that it ends."""

import os
import socket
from contextlib import suppress
from time import monotonic


class ServiceNotifier:
    """Sends datagrams to `$NOTIFY_SOCKET`; does nothing where there is none, and never fails.

    The variables are taken out of the environment: jobs must not speak for the service.

    Attributes:
        interval_s: how often `alive` has to be called, s; `inf` where no watchdog waits for it.
    """

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        usec, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        ours = self._address != "" and usec.isdecimal() and int(usec) > 0 and pid in ("", str(os.getpid()))
        # Twice as often as needed, as sd_watchdog_enabled(3) advises.
        self.interval_s = int(usec) / 2e6 if ours else float("inf")
        self._next_s = 0.0

    def ready(self, status: str) -> None:
        """Report that the run has its GPUs and begins."""
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def status(self, text: str) -> None:
        """Report the state of the run, one line."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Report that the run's event loop goes round, as often as the watchdog of the service wants it."""
        if monotonic() >= self._next_s and self.interval_s < float("inf"):
            self._next_s = monotonic() + self.interval_s
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the run ends."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # "@" stands for the zero byte of an abstract address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
            speaker.setblocking(False)
            speaker.sendto(message.encode(), address)
