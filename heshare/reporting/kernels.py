"""Kernels forked from a server in which everything is imported already (Linux); elsewhere each is a program of its own.

Imports and the training of the predictor take longer than many a notebook. A forked kernel is a process of its own all
the same: nothing that one notebook does is seen by another.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

FORKS = sys.platform == "linux"
"""Whether kernels are forked here."""
PRELOAD = "heshare.reporting.preloaded"
_LAUNCHER = "ipykernel_launcher"


def server(environment: Mapping[str, str]) -> Any:
    """This process's server; it is started with these variables if it does not run yet."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([PRELOAD])
    with _variables(environment):
        forkserver.ensure_running()
    return found


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Forked:
    """A forked kernel, as far as a kernel manager asks of a `subprocess.Popen`.

    Args:
        command: the kernel's command line.
        environment: its variables, all of them.
        folder: its working directory.
    """

    stdin = stdout = stderr = None

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        here = server(environment)
        self._leash, held = here.Pipe()
        words = list(command[command.index(_LAUNCHER) + 1 :])
        self._process = here.Process(target=_kernel, args=(words, dict(environment), folder, held))
        self._process.start()
        held.close()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        status: int | None = self._process.exitcode
        return status

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end, for so many seconds at most; its exit status."""
        self._process.join(timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def provisioner() -> type:
    """What launches kernels for a kernel manager, by forking."""
    from jupyter_client.provisioning.local_provisioner import LocalProvisioner

    class Forking(LocalProvisioner):
        async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
            self.cwd = str(kwargs.get("cwd") or Path.cwd())
            started: Any = Forked(cmd, kwargs["env"], self.cwd)
            # No group: until it has made one of its own, the kernel is in ours.
            self.process, self.pid, self.pgid = started, started.pid, None
            return self.connection_info

    return Forking


def _kernel(words: list[str], environment: dict[str, str], folder: str, leash: Connection) -> None:
    """The life of a forked kernel."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    time.tzset()
    os.chdir(folder)
    sys.path[:] = [*environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    Thread(target=_end_with, args=(leash,), daemon=True).start()
    import matplotlib
    from ipykernel.kernelapp import launch_new_instance

    matplotlib.rcParams["backend"] = os.environ["MPLBACKEND"]
    launch_new_instance(words)


def _end_with(leash: Connection) -> None:
    """End at once when whoever started this kernel is gone."""
    try:
        leash.recv()
    except (EOFError, OSError):
        os._exit(1)
