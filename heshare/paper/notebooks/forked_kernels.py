"""Kernels forked from a server process that has imported everything already (Linux only).

Imports and the training of the predictor take longer than many notebooks. With forked kernels, eight notebooks of the
smoke profile in two processes took 71 and 74 s of user and system time in place of 98 and 99 s. A forked kernel is a
process of its own: notebooks share no state.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

AVAILABLE = sys.platform == "linux"
"""Whether kernels are forked here; elsewhere each is started as a program."""
_LAUNCHER = "ipykernel_launcher"


def _fork_server(environment: Mapping[str, str]) -> Any:
    # The server is started with these variables, if it does not run yet.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["heshare.paper.notebooks.preloaded"])
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


class _ForkedKernel:
    """A forked kernel, with the part of the interface of `subprocess.Popen` that a kernel manager uses."""

    stdin = stdout = stderr = None

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        context = _fork_server(environment)
        self._parent_end, kernel_end = context.Pipe()
        arguments = list(command[command.index(_LAUNCHER) + 1 :])
        self._process = context.Process(target=_run_kernel, args=(arguments, dict(environment), folder, kernel_end))
        self._process.start()
        kernel_end.close()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        status: int | None = self._process.exitcode
        return status

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def provisioner_class() -> type:
    """Return the provisioner with which a kernel manager forks its kernel."""
    from jupyter_client.provisioning.local_provisioner import LocalProvisioner

    class ForkingProvisioner(LocalProvisioner):
        async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
            self.cwd = str(kwargs.get("cwd") or Path.cwd())
            kernel: Any = _ForkedKernel(cmd, kwargs["env"], self.cwd)
            # No process group: the kernel is in this process's group until it has made one of its own.
            self.process, self.pid, self.pgid = kernel, kernel.pid, None
            return self.connection_info

    return ForkingProvisioner


def _run_kernel(arguments: list[str], environment: dict[str, str], folder: str, parent: Connection) -> None:
    # In the forked process, as if it were a program of its own.
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    time.tzset()
    os.chdir(folder)
    sys.path[:] = [*environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    Thread(target=_exit_with, args=(parent,), daemon=True).start()
    import matplotlib
    from ipykernel.kernelapp import launch_new_instance

    # Matplotlib has been imported by the server, so it no longer reads the variable.
    matplotlib.rcParams["backend"] = os.environ["MPLBACKEND"]
    launch_new_instance(arguments)


def _exit_with(parent: Connection) -> None:
    # The end of the pipe is closed when the process that started this kernel has ended.
    try:
        parent.recv()
    except (EOFError, OSError):
        os._exit(1)
